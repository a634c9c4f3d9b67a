"""docs/notebook.ipynb: its cells run, draw where it shows a picture, and print what it shows."""

import ast
import contextlib
import io
import json
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebook.ipynb"


def run(source: str, names: dict) -> str:
    """What a notebook shows of a cell: what it prints, and the value of its last expression."""
    tree, printed = ast.parse(source), io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue() + ("" if value is None else repr(value))


def shown(cell: dict) -> str:
    parts = [output.get("text") or output["data"].get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(part) for part in parts)


@pytest.mark.slow
def test_the_notebook_says_what_its_code_does(monkeypatch):
    plt.switch_backend("agg")
    drawn: list[str] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append("picture") or plt.close("all"))
    names: dict = {"__name__": "notebook"}
    cells = [c for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert len(cells) > 5 and [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        drawn.clear()
        assert run("".join(cell["source"]), names).strip() == shown(cell).strip()
        assert len(drawn) == sum("image/png" in output.get("data", {}) for output in cell["outputs"])
