"""The fenced blocks of a page, how its Python is run, and the configs that its folder holds.

Imports no part of phasor: a page must run where nothing else imported one.
"""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^(?P<mark>[ \t]*<!-- not run: \S[^\n]*-->\n\s*)?"
    r"^(?P<indent>[ \t]*)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^[ \t]*```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

LLAMA = {  # Llama 3.1 8B
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
OTHER = {**LLAMA, "rope_theta": 10000.0}
CONFIGS = {"config.json": LLAMA, "a.json": LLAMA, "b.json": OTHER, "other.json": OTHER}


class Block(NamedTuple):
    line: int
    language: str
    body: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks that are to be run, with the line where each begins."""
    for match in FENCE.finditer(text):
        if not match["mark"]:
            indent = len(match["indent"])
            body = "".join(line[indent:] if line.strip() else line for line in match["body"].splitlines(keepends=True))
            yield Block(text.count("\n", 0, match.start("body")) + 1, match["language"], body)


def commands(body: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a shell block that call phasor, and the lines beneath each; continued lines are joined."""
    for part in re.split(r"^(?:\$ )?(?=phasor )", re.sub(r"\s*\\\n\s*", " ", body), flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        yield line, shown


def run_python(block: Block, names: dict, name: str) -> str:
    """Run one block in the namespace; what went wrong, or nothing."""
    if ">>>" not in block.body:
        exec(compile("\n" * (block.line - 1) + block.body, name, "exec"), names)
        return ""
    example = doctest.DocTestParser().get_doctest(block.body, names, f"{name}:{block.line}", name, block.line - 1)
    example.globs = names  # the parser copies; later blocks need what this one defines
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append, clear_globs=False)
    return "".join(report)
