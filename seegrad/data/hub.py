"""Files of a data set from a hub, by the hub's own client: its cache, mirror, token, offline switch and progress bar are the client's.

    huggingface   HF_ENDPOINT (mirror) · HF_HOME (cache) · HF_HUB_OFFLINE · HF_TOKEN
    modelscope    MODELSCOPE_ENDPOINT · MODELSCOPE_CACHE · MODELSCOPE_API_TOKEN; without a network the cache is used

What is in the cache is not fetched again, and is enough when the hub cannot be reached.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from seegrad.errors import DataError, MissingExtra, SeegradError, UsageError

HUBS = ("huggingface", "modelscope")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_LOCAL = "or give files of your own: data.path=FOLDER"


def fetch(repo: str, patterns: Sequence[str], *, revision: str = "", hub: str = "huggingface") -> Path:
    """The folder with the files of data set `repo` (`owner/name`) that fit one of `patterns` (`*` also fits `/`), at `revision` (empty: the newest).

    Raises UsageError when there is no such data set, revision or file, DataError when it cannot be reached or may not be read, MissingExtra.
    """
    if hub not in HUBS:
        raise UsageError(f"data.hub is {hub!r}, expected one of {', '.join(HUBS)}")
    where = f"data set {repo!r}{f' at revision {revision!r}' if revision else ''} on {hub}"
    folder = _from_huggingface(repo, patterns, revision, where) if hub == "huggingface" else _from_modelscope(repo, patterns, revision, where)
    if not any(path.is_file() and _fits(path.relative_to(folder), patterns) for path in folder.rglob("*")):
        raise UsageError(f"{where} has no file like {', '.join(patterns)}; look at its page, {_LOCAL}")
    return folder


def _fits(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.as_posix(), pattern) for pattern in patterns)


def _from_huggingface(repo: str, patterns: Sequence[str], revision: str, where: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision or None, allow_patterns=list(patterns)))
    except Exception as error:
        raise _explained(error, repo, revision, where) from error


def _explained(error: Exception, repo: str, revision: str, where: str) -> SeegradError:
    """One line for what huggingface_hub raised."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, HFValidationError):
        return UsageError(f"{repo!r} is not the id of a data set, expected owner/name; {_LOCAL}")
    if isinstance(error, GatedRepoError):
        return DataError(
            f"{where} is gated: accept its terms on its page, then sign in (`hf auth login`, or HF_TOKEN); {_LOCAL}", reason="hub refuses access"
        )
    if isinstance(error, RevisionNotFoundError):
        return UsageError(f"{where} does not exist at that revision; data.revision takes a branch, a tag or a commit (empty: the newest)")
    if isinstance(error, RepositoryNotFoundError):
        return UsageError(f"{where} does not exist, or is private and needs HF_TOKEN; check the id, {_LOCAL}")
    if isinstance(error, LocalEntryNotFoundError) and constants.HF_HUB_OFFLINE:
        return DataError(
            f"{where} is not in the cache ({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE is on; fetch it once with HF_HUB_OFFLINE=0, {_LOCAL}",
            reason="hub cannot be reached",
        )
    if _status(error) in (401, 403):
        return DataError(f"{where}: access is refused ({_status(error)}); check HF_TOKEN, {_LOCAL}", reason="hub refuses access")
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return DataError(
            f"{where} cannot be stored in {constants.HF_HUB_CACHE}: {error.strerror or error}; HF_HOME=FOLDER moves the cache", reason="no room"
        )
    return DataError(
        f"{where} cannot be fetched from {constants.ENDPOINT}: {_root(error)}; check the network, set a mirror with HF_ENDPOINT=URL, {_LOCAL}",
        reason="hub cannot be reached",
    )


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _root(error: BaseException) -> str:
    """The first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:159] + "…"


def _from_modelscope(repo: str, patterns: Sequence[str], revision: str, where: str) -> Path:
    try:
        from modelscope.hub.snapshot_download import snapshot_download
    except ImportError:
        raise MissingExtra("modelscope", "data", "data.hub=modelscope") from None

    if repo.count("/") != 1:
        raise UsageError(f"{repo!r} is not the id of a data set, expected owner/name; {_LOCAL}")
    logging.getLogger("modelscope_hub").setLevel(logging.CRITICAL)  # what fails is said here, in one line
    try:
        text = snapshot_download(repo, repo_type="dataset", revision=revision or None, allow_patterns=list(patterns))
    except Exception as error:
        kept = _kept(repo, patterns, revision) if _unreachable(error) else None
        if kept is None:
            raise _explained_modelscope(error, where) from error
        return kept
    _note(Path(text), patterns)
    return Path(text)


def _kept(repo: str, patterns: Sequence[str], revision: str) -> Path | None:
    """The cached files, when they are all there: the client itself would also give a download that broke off."""
    from modelscope.hub.snapshot_download import snapshot_download

    try:
        folder = Path(snapshot_download(repo, repo_type="dataset", revision=revision or None, local_files_only=True))
        sizes = json.loads(_note_path(folder, patterns).read_text(encoding="utf-8"))
    except (Exception, SystemExit):  # nothing is cached; the caller says why the hub did not answer
        return None
    whole = all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())
    return folder if whole else None


def _note(folder: Path, patterns: Sequence[str]) -> None:
    """Write down which files a finished download has."""
    files = [path for path in folder.rglob("*") if path.is_file() and _fits(path.relative_to(folder), patterns)]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    _note_path(folder, patterns).write_text(json.dumps(sizes), encoding="utf-8")


def _note_path(folder: Path, patterns: Sequence[str]) -> Path:
    """Beside the snapshot, so that it is no file of the data set."""
    word = hashlib.sha256("\n".join(sorted(patterns)).encode()).hexdigest()[:12]
    return folder.parent / f"{folder.name}.seegrad-{word}.json"


def _unreachable(error: BaseException) -> bool:
    """Whether the hub gave no answer (as against a refusal)."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionError | TimeoutError) or type(seen).__name__ in (
            "ConnectionError",
            "ConnectTimeout",
            "ReadTimeout",
            "ServerError",
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _explained_modelscope(error: Exception, where: str) -> SeegradError:
    """One line for what modelscope raised."""
    status = _status(error) or getattr(error.__cause__, "status_code", None) or getattr(error, "status_code", None)
    if status == 404:
        return UsageError(f"{where} does not exist, or is private and needs MODELSCOPE_API_TOKEN; check the id and data.revision, {_LOCAL}")
    if status in (401, 403):
        return DataError(f"{where}: access is refused ({status}); check MODELSCOPE_API_TOKEN, {_LOCAL}", reason="hub refuses access")
    return DataError(
        f"{where} cannot be fetched: {_root(error)}; check the network, set a mirror with MODELSCOPE_ENDPOINT=URL, {_LOCAL}",
        reason="hub cannot be reached",
    )
