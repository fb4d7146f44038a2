"""The bundled model's tokenizer: byte-level BPE (any text round-trips), with whole-word tokens for pictures, numbers and geometry."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PLAIN_ADDED_TOKENS = ("<think>", "</think>")
# Words stay whole, digits stand alone, a word may take one leading space or sign with it.
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CHINESE = """图中 图里 图片 这张图 有 几个 多少个 一共 共有 共 个 数一数 数 框出 框 在 哪里 哪个 里 的 是 答案
选项 选 先 说明 再 把 写 写在 最后 因为 所以 三角形 圆形 正方形 形状 红色 蓝色 绿色 颜色 上 中 下
左 右 左上 右上 左下 右下 中间 位置 坐标 描述 每一行 行 列 没有 问题 回答 请 计算 等于 加 减 角 边
长 面积 周长 度 直线 平行 垂直 三 四 五 六 七 一 二 两 零 你 我 好 谢谢 模型 学习 ，中 ，下 ：上
。先 ，再 空 格 从 到 不 对 错 大 小 最大 最小 数字 字母 选择 看 看到 可以 什么 怎么 为什么 这 那
和 或 与 也 都"""
ENGLISH = """How many are in the picture Count What is number of Where Find box Explain then answer put letter There There's triangle triangles circle
circles square squares Circle Triangle Square Circles Triangles Squares top middle bottom left right red blue green row column Describe each
The answer: Answer option image picture shape shapes color colour and or not no yes boxed x y system user assistant You a an helpful it its
this that with for to from on at by one two three four five six seven zero add plus minus equals equal angle side length area degrees line
parallel sum total so because I we see can do does how when why which which's than more less most least empty cell large small letters
numbers question think step first second last final model learn"""
EXTRA = (
    "\\boxed",
    "boxed",
    "{",
    "}",
    "。\\",
    ".\\",
    " \\",
    "：",
    "，",
    "。",
    "？",
    "{}",
    "。\n",
    "}.",
    "{}.",
    "}里",
    "{}里",
    ": ",
    ", ",
    ". ",
    "\n",
    "\n\n",
    ",",
    ".",
    "?",
    "+",
    "=",
    "-",
)


def train_tokenizer() -> Tokenizer:
    """Deterministic: the same word list gives the same file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    words = [*CHINESE.split(), *ENGLISH.split(), *(" " + word for word in ENGLISH.split()), *EXTRA]
    trainer = trainers.BpeTrainer(vocab_size=4000, min_frequency=1, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_ADDED_TOKENS])
    return tokenizer


CHAT_TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def write_tokenizer(folder: Path) -> Tokenizer:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja in `folder`."""
    import json

    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return tokenizer
