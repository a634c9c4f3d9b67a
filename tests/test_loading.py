"""Files are data: no call of the package can run code from one, or fetch one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from house import PACKAGES, ROOT

# What must be said in so many words, because what is left out may ask on the terminal, or mean yes one day.
SAID = {
    "from_pretrained": {"trust_remote_code": False, "local_files_only": True},
    "from_config": {"trust_remote_code": False},
}
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
LOADERS = {"load": {"torch": {"weights_only": True}, "np": {"allow_pickle": False}, "numpy": {"allow_pickle": False}}}
# What is compiled there is the source of a function that is imported already, changed by names alone.
OWN_SOURCE = "src/phasor/tools/patch/swap.py"
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "runpy", "imp"}


def said(call: ast.Call | None) -> dict[str | None, object]:
    words = call.keywords if call else []
    return {word.arg: word.value.value for word in words if isinstance(word.value, ast.Constant)}


def complaints(source: str) -> Iterator[str]:
    """`line: what` for each place that may run what a file says."""
    yield from complaints_of(ast.parse(source))


def complaints_of(tree: ast.Module) -> Iterator[str]:
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in RUNS_CODE:
            yield f"{node.lineno}: {node.id}"
        if isinstance(node, ast.ImportFrom) and node.module in UNPICKLERS:
            yield f"{node.lineno}: {node.module}"
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        needed = SAID.get(node.attr) or LOADERS.get(node.attr, {}).get(owner, {})
        words = said(calls.get(id(node)))
        if any(words.get(name) is not value for name, value in needed.items()):
            yield f"{node.lineno}: {node.attr} without {needed}"
        if owner in UNPICKLERS and node.attr != "Pickler" and not node.attr.endswith("Error"):  # writing runs nothing
            yield f"{node.lineno}: {owner}.{node.attr}"


@cache
def package() -> dict[Path, ast.Module]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in paths}


def test_nothing_in_the_package_can_run_a_file():
    found = [f"{p.relative_to(ROOT)}:{c}" for p, tree in package().items() for c in complaints_of(tree)]
    assert [re.sub(r"\d+: ", "", where) for where in found] == [f"{OWN_SOURCE}:compile"]


def test_the_places_that_load_are_seen():
    """Without them the test above would find nothing, whatever it looked for."""
    named = {
        (node.attr, path.stem if node.attr == "load" else "")
        for path, tree in package().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.attr in SAID or (node.attr == "load" and ast.unparse(node) == "torch.load"))
    }
    assert named == {
        ("from_pretrained", ""),
        ("from_config", ""),
        ("load", "torch_file"),
    }  # pickles of others, if asked


@pytest.mark.parametrize(
    "source",
    [
        "AutoModel.from_pretrained(folder, local_files_only=True)",
        "AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=True)",
        "AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=None)",
        "AutoModel.from_pretrained(folder, trust_remote_code=False)",
        "AutoModel.from_pretrained(folder, **options)",
        "transformers.AutoModel.from_config(settings)",
        "make = AutoModel.from_config",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file)",
        "import pickle\npickle.loads(data)",
        "from pickle import loads",
        "eval(text)",
    ],
)
def test_a_careless_call_is_found(source):
    assert len(list(complaints(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=False)",
        "AutoModel.from_config(settings, trust_remote_code=False)",
        "torch.load(file, weights_only=True)",
        "model.eval()",
        "json.load(file)",
        "except pickle.UnpicklingError: pass".join(["try: pass\n", ""]),
    ],
)
def test_a_careful_call_is_left_alone(source):
    assert list(complaints(source)) == []
