"""README.md and docs/tour.md are right: their Python runs and prints what they say, their commands run.

Fenced ``python`` blocks run in order in one namespace; with ``>>>`` they are compared like doctests. Of ``bash`` and
``console`` blocks the lines that call ``phasor`` run, in order, in one empty folder. A block right below a comment
``<!-- not run: reason -->`` is only read. The folder holds
configs, vectors of another implementation, labelled texts, a model and its ONNX file, as a reader's would.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

import limited
import phasor
import phasor.tools.onnx
from blocks import CONFIGS, LLAMA, ROOT, Block, blocks, run_python
from house import PYTHONPATH
from phasor import golden


def commands(body: str) -> list[str]:
    """The lines of a shell block that call phasor; prompts go, continued lines are joined."""
    lines = (line.strip().removeprefix("$ ") for line in re.sub(r"\s*\\\n\s*", " ", body).splitlines())
    return [line for line in lines if line == "phasor" or line.startswith("phasor ")]


@pytest.fixture(scope="module", params=["README.md", "docs/tour.md"])
def page(request: pytest.FixtureRequest) -> list[Block]:
    return list(blocks((ROOT / request.param).read_text(encoding="utf-8")))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """PATH with the installed ``phasor`` of this interpreter; if there is none, one that starts the same entry."""
    folder = tmp_path / "bin"
    folder.mkdir()
    installed = Path(sys.executable).with_name("phasor")
    if installed.exists():
        (folder / "phasor").symlink_to(installed)
    else:
        start = "import sys; from phasor.cli import main; sys.exit(main())"
        (folder / "phasor").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n', encoding="utf-8")
        (folder / "phasor").chmod(0o755)
    sources = os.pathsep.join(filter(None, [PYTHONPATH, os.environ.get("PYTHONPATH")]))
    path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "PYTHONPATH": sources, "MPLBACKEND": "Agg"}


def write_files_of_users(folder: Path) -> None:
    """What the README takes for granted: vectors of another implementation, labelled texts, texts, models."""
    write_vectors_and_texts(folder)
    write_models(folder)
    write_onnx(folder / "model.onnx")


def write_vectors_and_texts(folder: Path) -> None:
    golden.write(CONFIGS["config.json"], folder / "theirs")
    shutil.move(folder / "theirs" / "vectors.safetensors", folder / "mine.safetensors")
    texts = [f"{name} lives in {city}" for name in ("Ada", "Bob", "Eve") for city in ("Rome", "Oslo")]
    labelled = [
        {"text": t, "label": {"name": {t[:3]: [[0, 2]]}, "city": {t[-4:]: [[len(t) - 4, len(t) - 1]]}}} for t in texts
    ]
    for name in ("train.json", "dev.json"):
        (folder / name).write_text("\n".join(map(json.dumps, labelled)), encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "book.txt").write_text(" ".join(texts * 100), encoding="utf-8")


def write_models(folder: Path) -> None:
    """A Llama with a tokenizer for the doctor, and two to convert and to look at."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["?", *sorted(set((folder / "book.txt").read_text(encoding="utf-8").split()))]
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for name in ("my-model", "SRC", "DIR"):
        model.save_pretrained(folder / name)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder / "my-model")


def write_onnx(path: Path) -> None:
    """The rotations of `config.json`: q and k in every layer."""

    class Rotations(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = phasor.read_config(LLAMA).layers
            self.layers = torch.nn.ModuleList(phasor.Rotary(spec, kernel="onnx") for spec in layers)

        def forward(self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for layer in self.layers:
                q, k = layer(q, k, positions)
            return q, k

    given = torch.randn(1, 32, 16, 128), torch.randn(1, 8, 16, 128), torch.arange(16)
    phasor.onnx.export(Rotations(), given, path, opset_version=23)


def test_python_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "readme"}
    found = [block for block in page if block.language in ("python", "py", "pycon")]
    assert found, "the page shows no Python"
    wrong = [report for block in found if (report := run_python(block, names, "page"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow  # the commands train models: minutes on a busy machine
def test_commands(page, tmp_path, environment):
    lines = [line for block in page if block.language in ("bash", "console", "sh") for line in commands(block.body)]
    assert lines, "the page shows no command"
    folder = tmp_path / "work"
    folder.mkdir()
    for name, config in CONFIGS.items():
        (folder / name).write_text(json.dumps(config), encoding="utf-8")
    write_files_of_users(folder)
    for line in lines:
        done = limited.run(["bash", "-c", line], cwd=folder, env=environment)
        allowed = (0, 1) if " --diff " in line else (0,)  # 1: the two differ
        assert done.returncode in allowed, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


# --- the reader of blocks itself ------------------------------------------------------------------------------------

SAMPLE = """# Title

```python
a = 1
```

- a list

  ```python
  >>> a + 1
  2
  ```

<!-- not run: needs a checkpoint -->
```python
raise SystemExit
```

```bash
pip install phasor
$ phasor inspect \\
    --short  # a comment
phasorish
phasor
```
"""


def test_reader_of_blocks():
    found = list(blocks(SAMPLE))
    assert [(b.line, b.language) for b in found] == [(4, "python"), (10, "python"), (20, "bash")]
    assert found[1].body == ">>> a + 1\n2\n"
    assert commands(found[2].body) == ["phasor inspect --short  # a comment", "phasor"]


def test_reader_notices_wrong_output():
    names: dict = {}
    assert run_python(Block(1, "python", "a = 1\n"), names, "sample") == ""
    assert run_python(Block(3, "python", ">>> b = a + 1\n>>> b\n2\n"), names, "sample") == ""
    assert run_python(Block(5, "python", ">>> b\n2\n"), names, "sample") == ""
    assert "Expected" in run_python(Block(7, "python", ">>> b\n3\n"), names, "sample")
    with pytest.raises(NameError):
        run_python(Block(9, "python", "c\n"), names, "sample")
