"""Makes the bundled model: `python scripts/pretrain_tiny.py --out seegrad/assets/tiny`. Supervised, seeded, resumable (run the same command again).

As with large models, the eye is trained before it meets the language model. All labels are true:
  1 eye       vision tower alone: which kind covers each visual token, and the box of that shape (a linear head that is thrown away)
  2 look-up   text only: the description is given, the model learns sums and option letters
  3 tasks     count, choice, ground in the habits of scripts/tiny_answers.py, with some look-ups      (what RL starts from)
Pictures come from the `pretrain` split, which shares none with train, dev, test or ood.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tiny_answers import answer_text, describe, pick_form, reason
from tiny_tokenizer import write_tokenizer
from tokenizers import Tokenizer
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from seegrad.data.shapes import KINDS, LETTERS, QUESTIONS, SIZE, Scene, Task, ask, draw_scene, paint, shuffled_options
from seegrad.rewards.grounding import overlap, rectangle

PATCH, MERGE, TEMPORAL = 8, 2, 2
SIDE = SIZE // PATCH
MIXES: tuple[tuple[int, dict[str, float]], ...] = (  # until which step, which shares
    (100, {"lookup": 1.0}),
    (355, {"count-alone-short": 0.5, "ground-alone-short": 0.45, "lookup": 0.05}),
    (625, {"count-alone-short": 0.1, "ground-alone-short": 0.15, "count-short": 0.4, "ground-short": 0.3, "lookup": 0.05}),
    (750, {"lookup": 0.05, "count": 0.35, "choice": 0.25, "ground": 0.35}),
    (1_000_000, {"lookup": 0.35, "count": 0.15, "choice": 0.3, "ground": 0.2}),
)
NUM_IMAGE_TOKENS = (SIDE // MERGE) ** 2


@dataclass(frozen=True)
class Row:
    """`tokens` of the whole chat, the first trained position, and the picture (H, W, 3) or None."""

    tokens: list[int]
    train_from: int
    picture: np.ndarray | None


def model_config(tokenizer: Tokenizer) -> Qwen3VLConfig:
    def token(text: str) -> int:
        return tokenizer.token_to_id(text)

    return Qwen3VLConfig(
        text_config={
            "vocab_size": math.ceil(tokenizer.get_vocab_size() / 64) * 64,
            "hidden_size": 192,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True},
            "tie_word_embeddings": True,
            "bos_token_id": token("<|endoftext|>"),
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            "depth": 3,
            "hidden_size": 128,
            "intermediate_size": 320,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": TEMPORAL,
            "out_hidden_size": 192,
            "num_position_embeddings": SIDE * SIDE,
            "deepstack_visual_indexes": [1],
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def write_folder_files(folder: Path) -> Tokenizer:
    """Tokenizer, image processor and generation settings, as a hub model has them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": 32 * 32, "longest_edge": 512 * 512},
        "patch_size": PATCH,
        "temporal_patch_size": TEMPORAL,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n", encoding="utf-8")
    ends = [tokenizer.token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>")]
    generation = {"eos_token_id": ends, "pad_token_id": ends[1], "do_sample": True, "temperature": 1.0}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    return tokenizer


class Rows:
    """Draws training rows; row i of batch b depends on (seed, b, i) only."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        self.image_run = "<|vision_start|>" + "<|image_pad|>" * NUM_IMAGE_TOKENS + "<|vision_end|>"

    def batch(self, step: int, size: int, mix: dict[str, float], split: str = "pretrain") -> list[Row]:
        rows = []
        for i in range(size):
            rng = np.random.default_rng([self.seed, step, i])
            kind = str(rng.choice(list(mix), p=np.array(list(mix.values())) / sum(mix.values())))
            rows.append(self.lookup(rng) if kind == "lookup" else self.task(kind, rng, split))
        return rows

    def prompt(self, question: str, image: bool, rng: np.random.Generator) -> str:
        thinking = "" if rng.random() < 0.05 else "<think>\n\n</think>\n\n"
        return f"<|im_start|>user\n{question}{self.image_run if image else ''}<|im_end|>\n<|im_start|>assistant\n{thinking}"

    def make(self, prompt: str, answer: str, picture: np.ndarray | None, given: str = "") -> Row:
        head = self.tokenizer.encode(prompt + given).ids if given else self.tokenizer.encode(prompt).ids
        whole = self.tokenizer.encode(prompt + given + answer + "<|im_end|>").ids
        shared = 0
        while shared < len(head) and head[shared] == whole[shared]:
            shared += 1
        return Row(whole, shared, picture)

    def task(self, task: str, rng: np.random.Generator, split: str) -> Row:
        name: Task = task.partition("-")[0]  # type: ignore[assignment]
        scene = draw_scene(name, split, rng)
        if "-alone" in task:
            scene = replace(scene, shapes=scene.of(scene.asked))
        language = ("zh", "en")[int(rng.integers(2))]
        phrasing = int(rng.integers(len(QUESTIONS[name][language])))
        options = shuffled_options(scene.count(scene.asked), 5, rng) if name == "choice" else ()
        question = ask(name, language, phrasing, scene.asked, options)
        form = "B" if "-short" in task else pick_form(name, language, phrasing, rng)
        return self.make(self.prompt(question, True, rng), answer_text(form, name, language, scene, options), np.asarray(paint(scene)))

    def lookup(self, rng: np.random.Generator) -> Row:
        """Text only: given the description, reason and answer (sums up to 9)."""
        bands = (9, 9, 9)
        while sum(bands) > 9:
            bands = tuple(int(value) for value in rng.integers(0, 8, 3))  # type: ignore[assignment]
        number, language, kind = sum(bands), ("zh", "en")[int(rng.integers(2))], KINDS[int(rng.integers(3))]
        task: Task = "choice" if rng.random() < 0.7 and number > 0 else "count"
        phrasing = int(rng.integers(3))
        options = shuffled_options(number, 9, rng) if task == "choice" else ()
        final = LETTERS[options.index(str(number))] if task == "choice" else str(number)
        prompt = self.prompt(ask(task, language, phrasing, kind, options), False, rng)
        return self.make(prompt, f"{reason(language, bands, options)}\\boxed{{{final}}}", None, given=describe(language, kind, bands).rstrip())


def patches(pictures: list[np.ndarray]) -> torch.Tensor:
    """(N·SIDE², 3·TEMPORAL·PATCH²) float pixels in the processor's order."""
    x = torch.from_numpy(np.stack(pictures)).float().div_(127.5).sub_(1.0)  # N H W C
    half = SIDE // MERGE
    x = x.view(len(pictures), half, MERGE, PATCH, half, MERGE, PATCH, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
    x = x.unsqueeze(-3).expand(*x.shape[:-2], TEMPORAL, PATCH, PATCH)
    return x.reshape(len(pictures) * SIDE * SIDE, -1)


def collate(rows: list[Row], pad: int, image_token: int) -> dict[str, torch.Tensor]:
    longest = max(len(row.tokens) for row in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for i, row in enumerate(rows):
        length = len(row.tokens)
        ids[i, :length] = torch.tensor(row.tokens)
        labels[i, row.train_from : length] = ids[i, row.train_from : length]
        mask[i, :length] = 1
    batch = {"input_ids": ids, "labels": labels, "attention_mask": mask, "mm_token_type_ids": (ids == image_token).int()}
    pictures = [row.picture for row in rows if row.picture is not None]
    if pictures:
        batch["pixel_values"] = patches(pictures)
        batch["image_grid_thw"] = torch.tensor([[1, SIDE, SIDE]] * len(pictures))
    return batch


def eye_targets(scene: Scene) -> np.ndarray:
    """(tokens, 3 + 4 + 1): per visual token which kinds cover it, the box (÷ SIZE) of the shape that covers most of it, and whether there is one."""
    side, cell = SIDE // MERGE, PATCH * MERGE
    targets = np.zeros((side, side, 8), np.float32)
    best = np.zeros((side, side))
    for shape in scene.shapes:
        x1, y1, x2, y2 = shape.box
        for row in range(y1 // cell, y2 // cell + 1):
            for column in range(x1 // cell, x2 // cell + 1):
                width = min(x2 + 1, (column + 1) * cell) - max(x1, column * cell)
                height = min(y2 + 1, (row + 1) * cell) - max(y1, row * cell)
                if width * height >= 6:
                    targets[row, column, KINDS.index(shape.kind)] = 1
                    if width * height > best[row, column]:
                        best[row, column] = width * height
                        targets[row, column, 3:] = [x1 / SIZE, y1 / SIZE, x2 / SIZE, y2 / SIZE, 1]
    return targets.reshape(side * side, 8)


def pretrain_eye(model: Qwen3VLForConditionalGeneration, steps: int, size: int, peak: float, seed: int) -> None:
    """Stage 1. The heads read the merged features and every deepstack level; they are not kept."""
    levels = 1 + len(model.config.vision_config.deepstack_visual_indexes)
    heads = torch.nn.ModuleList(torch.nn.Linear(model.config.vision_config.out_hidden_size, 7) for _ in range(levels))
    parameters = [*model.model.visual.parameters(), *heads.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.98), weight_decay=0.02)
    recent: list[list[float]] = []
    for step in range(steps):
        rng = np.random.default_rng([seed, 1, step])
        scenes = [draw_scene("count" if i % 2 else "ground", "pretrain", rng) for i in range(size)]
        wanted = torch.from_numpy(np.stack([eye_targets(scene) for scene in scenes])).flatten(0, 1)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak)
        out = model.model.get_image_features(patches([np.asarray(paint(scene)) for scene in scenes]), torch.tensor([[1, SIDE, SIDE]] * size))
        loss = torch.zeros(())
        for head, features in zip(heads, (out.pooler_output, *out.deepstack_features), strict=True):
            flat = torch.cat(list(features))
            seen = head(5.0 * flat)
            kinds = torch.nn.functional.binary_cross_entropy_with_logits(seen[:, :3], wanted[:, :3])
            covered = wanted[:, 7] > 0
            boxes = (seen[covered, 3:] - wanted[covered, 3:7]).abs().mean()
            loss = loss + kinds + boxes + 1e-3 * flat.square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append([kinds.item(), boxes.item(), flat.detach().std().item()])
        if (step + 1) % 50 == 0:
            print(
                f"eye {step + 1}: kinds {np.mean(recent, 0)[0]:.4f}  boxes {np.mean(recent, 0)[1] * SIZE:.2f} px  scale {recent[-1][2]:.3f}",
                flush=True,
            )
            recent = []


def answer_loss(model: Qwen3VLForConditionalGeneration, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy over the answer tokens; logits are made for those positions only."""
    targets = batch.pop("labels")[:, 1:]
    hidden = model.model(**batch, use_cache=False).last_hidden_state[:, :-1]
    trained = targets != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[trained]), targets[trained])


def learning_rate(step: int, steps: int, peak: float) -> float:
    warm = min(1.0, (step + 1) / 100)
    return peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def mix_at(step: int) -> dict[str, float]:
    """Shares of the kinds of row. `-alone`: no shapes of other kinds; `-short`: the answer without words."""
    return next(mix for end, mix in MIXES if step < end)


@torch.no_grad()
def accuracy(model: Qwen3VLForConditionalGeneration, rows: Rows, step: int, size: int = 192) -> dict[str, float]:
    """Greedy accuracy by task and form, from the model's own words on `dev` pictures: cheap, only to watch progress."""
    model.eval()
    result: dict[str, list[float]] = {}
    tokenizer = rows.tokenizer
    for task in ("count", "choice", "ground"):
        batch_rows = rows.batch(10_000_000, size, {task: 1.0}, "dev")
        prompts = []
        golds = []
        for row in batch_rows:
            start = row.train_from
            think = tokenizer.token_to_id("</think>")
            if think in row.tokens:
                start = row.tokens.index(think) + 2
            golds.append(tokenizer.decode(row.tokens[start:]))
            prompts.append(Row(row.tokens[:start], start, row.picture))
        longest = max(len(p.tokens) for p in prompts)
        pad, image = model.config.text_config.pad_token_id, model.config.image_token_id
        ids = torch.full((size, longest), pad)
        mask = torch.zeros((size, longest), dtype=torch.long)
        for i, p in enumerate(prompts):
            ids[i, longest - len(p.tokens) :] = torch.tensor(p.tokens)
            mask[i, longest - len(p.tokens) :] = 1
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            mm_token_type_ids=(ids == image).int(),
            pixel_values=patches([p.picture for p in prompts if p.picture is not None]),
            image_grid_thw=torch.tensor([[1, SIDE, SIDE]] * size),
            max_new_tokens=56,
            do_sample=False,
        )
        for i, gold in enumerate(golds):
            text = tokenizer.decode(out[i, longest:].tolist())
            given, wanted = _final(text), _final(gold)
            form = "R" if ("=" in text or "。\\" in text or ". \\" in text) else "B" if "\\boxed" in text else "N"
            right = _iou(given, wanted) if task == "ground" else float(given == wanted)
            result.setdefault(task, []).append(right)
            result.setdefault(f"{task}/{form}", []).append(right)
            result.setdefault(f"{task}/boxed", []).append(float("boxed" in text))
            if i < 2:
                print(f"    {task}: {text!r}  gold {gold!r}", flush=True)
    model.train()
    return {key: round(float(np.mean(values)), 3) for key, values in sorted(result.items())} | {"n_R": len(result.get("count/R", []))}


def _final(text: str) -> str:
    text = text.replace("1,y1", "")
    if "boxed{" in text:
        return text.rsplit("boxed{", 1)[1].split("}")[0]
    cleaned = "".join(ch if ch in "0123456789,ABCD" else " " for ch in text).split()
    return max(cleaned, key=len) if cleaned else ""


def _iou(a: str, b: str) -> float:
    given, wanted = rectangle(a), rectangle(b)
    return overlap(given, wanted) if given and wanted else 0.0


def save(model: Qwen3VLForConditionalGeneration, folder: Path) -> None:
    """bf16 weights beside the tokenizer files."""
    state = {key: value.to(torch.bfloat16) for key, value in model.state_dict().items()}
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder, state_dict=state)
    write_folder_files(folder)


def batches(rows: Rows, first: int, steps: int, size: int) -> Iterator[tuple[int, list[Row]]]:
    """Rows drawn one step ahead, in a thread."""
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(rows.batch, first, size, mix_at(first))
        for step in range(first, steps):
            ready = pending.result()
            if step + 1 < steps:
                pending = pool.submit(rows.batch, step + 1, size, mix_at(step + 1))
            yield step, ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/pretrain-tiny"))
    parser.add_argument("--steps", type=int, default=1600, help="length of the learning-rate schedule")
    parser.add_argument("--eye-steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--peak", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-after", type=int, default=1000, help="leave after this step: a base model has something left to learn")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    tokenizer = write_folder_files(args.out)
    config = model_config(tokenizer)
    config._attn_implementation = "sdpa"
    model = Qwen3VLForConditionalGeneration(config).float()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters", flush=True)
    matrices = [p for name, p in model.model.language_model.layers.named_parameters() if p.ndim == 2]
    matrix_ids = {id(p) for p in matrices}
    others = [p for name, p in model.named_parameters() if id(p) not in matrix_ids and "visual" not in name]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.03),
        torch.optim.Muon(matrices, weight_decay=0.03, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
    ]
    first = 0
    args.work.mkdir(parents=True, exist_ok=True)
    state_file = args.work / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        first = state["step"]
        print(f"resumed at step {first}", flush=True)
    else:
        eye_file = args.work / "eye.pt"
        if eye_file.exists():
            model.model.visual.load_state_dict(torch.load(eye_file, weights_only=True))
        else:
            pretrain_eye(model, args.eye_steps, 64, 1.5e-3, args.seed)
            torch.save(model.model.visual.state_dict(), eye_file)
    model.model.visual.requires_grad_(False)  # from here on the tower stays as it is
    rows = Rows(tokenizer, args.seed)
    pad, image = config.text_config.pad_token_id, config.image_token_id
    started, recent = time.time(), []
    last = min(args.steps, args.stop_after)
    for step, drawn in batches(rows, first, args.steps, args.batch):
        if step >= last:
            break
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(step, args.steps, args.peak)
        loss = answer_loss(model, collate(drawn, pad, image))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        recent.append(loss.item())
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}  loss {np.mean(recent):.4f}  {(time.time() - started) / (step + 1 - first):.3f} s/step", flush=True)
            recent = []
        if (step + 1) % 250 == 0 or step + 1 == last:
            temporary = state_file.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers], "step": step + 1}, temporary)
            temporary.replace(state_file)
            if step + 1 > MIXES[0][0]:
                print(f"  {step + 1}: {accuracy(model, rows, step)}", flush=True)
                save(model, args.work / f"step-{step + 1:05d}")
    save(model, args.out)
    print(f"wrote {args.out}", flush=True)


if __name__ == "__main__":
    main()
