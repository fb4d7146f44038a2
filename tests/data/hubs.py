"""A hub on this machine: the requests that the clients of Hugging Face and ModelScope make for a data set, answered from a dictionary."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMITS = {"main": "a" * 40, "master": "a" * 40, "v1": "b" * 40}
GATED, BROKEN = "some-one/gated", "some-one/broken"


@dataclass
class Hub:
    """`files` maps repo → commit → path → bytes; `paths` collects what was asked for."""

    files: Mapping[str, Mapping[str, Mapping[str, bytes]]]
    url: str = ""
    paths: list[str] = field(default_factory=list)

    @property
    def fetched(self) -> list[str]:
        """The files whose content was asked for."""
        return [path for path in self.paths if path.startswith("GET") and ("/resolve/" in path or "FilePath=" in path)]


@contextmanager
def serve(files: Mapping[str, Mapping[str, Mapping[str, bytes]]]) -> Iterator[Hub]:
    """A hub with these files, on a free port of this machine."""
    hub = Hub(files)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self.hub.paths.append(f"{'GET' if body else 'HEAD'} {unquote(self.path)}")
        url = urlsplit(self.path)
        parts = unquote(url.path).strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if parts[:3] == ["api", "v1", "datasets"]:
            self._modelscope(parts, query, body)
        elif parts[:2] == ["api", "datasets"]:
            self._huggingface(parts, body)
        elif parts[0] == "datasets" and "resolve" in parts:
            commit = parts[parts.index("resolve") + 1]
            self._file("/".join(parts[1:3]), commit, "/".join(parts[parts.index("resolve") + 2 :]), body)
        else:
            self._json({"error": "no such page"}, body, 404)

    def _huggingface(self, parts: list[str], body: bool) -> None:
        repo = "/".join(parts[2:4])
        if repo == GATED:
            self._json({"error": "restricted"}, body, 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"})
        elif repo == BROKEN:
            self._json({"error": "out of order"}, body, 500)
        elif repo not in self.hub.files:
            self._json({"error": "not found"}, body, 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "not found"})
        else:
            revision = "/".join(parts[5:]) or "main"
            commit = COMMITS.get(revision, revision)
            files = self.hub.files[repo].get(commit)
            if files is None:
                self._json({"error": "no revision"}, body, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"no {revision}"})
            elif parts[4] == "tree":
                self._json([{"type": "file", "path": path, "size": len(data), "oid": _oid(data)} for path, data in files.items()], body)
            else:
                self._json({"_id": "1", "id": repo, "sha": commit, "siblings": [{"rfilename": path} for path in files]}, body)

    def _modelscope(self, parts: list[str], query: dict[str, str], body: bool) -> None:
        repo = "/".join(parts[3:5])
        commit = COMMITS.get(query.get("Revision", "master"), "")
        if repo == GATED:
            self._json({"Code": 10010205003, "Message": "no access", "Success": False}, body, 403)
        elif repo not in self.hub.files or commit not in self.hub.files[repo]:
            self._json({"Code": 10010205001, "Message": "not found", "Success": False}, body, 404)
        elif parts[-1] == "tree":
            entries = [
                {"Path": path, "Name": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
                for path, data in self.hub.files[repo][commit].items()
            ]
            self._json({"Code": 200, "Success": True, "Data": {"Files": entries, "TotalCount": len(entries)}}, body)
        elif parts[-1] == "repo":
            self._file(repo, commit, query["FilePath"], body)
        else:
            self._json({"Code": 200, "Success": True, "Data": {}}, body)

    def _file(self, repo: str, commit: str, path: str, body: bool) -> None:
        data = self.hub.files.get(repo, {}).get(COMMITS.get(commit, commit), {}).get(path)
        if data is None:
            self._json({"error": "no such file"}, body, 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "no such file"})
            return
        self._send(data, body, 200, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": commit, "Content-Type": "application/octet-stream"})

    def _json(self, value: object, body: bool, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), body, status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, body: bool, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
