"""The fixtures that phasor brings to pytest, in test files as other people write them."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

import limited
from pytest_runs import run_tests

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import pytest
import torch

def logits(tokens, positions):  # rotates by differences of positions: relative, and each row for itself
    angle = (positions[:, :, None] - positions[:, None, :]).float() * {factor}
    seen = torch.ones(tokens.shape[1], tokens.shape[1]).tril()
    return torch.einsum("bij,bj->bi", angle.cos() * seen, tokens.float())[..., None]

@pytest.fixture(scope="module")
def phasor_model():
    return logits
"""
CHOSEN = """
@pytest.mark.parametrize("phasor_law", ["relative", "batch_invariant"], indirect=True)
def test_law(phasor_law):
    phasor_law()
"""
GOLDEN = """
import torch

CONFIG = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}

def rotate(golden, first, second):
    x, positions, inv_freq = (golden.tensors[f"attention.{name}"] for name in ("q_in", "positions", "exact.inv_freq"))
    angle, out = positions[:, None] * inv_freq, x.double()
    a, b = out[..., first], out[..., second]
    out[..., first], out[..., second] = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return {"attention.exact.float32.q_out": out.float()}

def test_a_lost_gradient(phasor_golden):
    golden = phasor_golden(CONFIG)
    frozen = lambda x: golden.tensors["attention.exact.float32.q_out"]
    golden.check({"attention.exact.float32.q_out": frozen})

def test_halves(phasor_golden):
    golden = phasor_golden(CONFIG, positions=[0, 1, 500])
    golden.check(rotate(golden, [0, 1], [2, 3]))

def test_interleaved(phasor_golden):
    golden = phasor_golden(CONFIG)
    golden.check(rotate(golden, [0, 2], [1, 3]))
"""


@pytest.fixture
def run(python, tmp_path):
    return lambda source, *arguments: run_tests(python, tmp_path, source, *arguments)


def test_the_laws_hold_of_a_function_that_rotates_by_distances(run):
    assert run(MODEL.format(factor=0.1) + CHOSEN)[0] == {"passed": 2}


def test_a_fault_fails_the_law_that_it_breaks_alone(run):
    outcomes, lines = run(MODEL.format(factor="(0.1 + positions[:, :1, None])") + CHOSEN)
    assert outcomes == dict(passed=1, failed=1)
    said = "E *AssertionError: shift of all positions: logits differ by *"
    lines.fnmatch_lines([said, "FAILED *test_law[[]relative[]]*"])


def test_every_law_is_a_test_and_one_that_cannot_be_checked_fails(run):
    """A function keeps no cache, and has one way of attention."""
    outcomes, lines = run(MODEL.format(factor=0.1) + "def test_law(phasor_law):\n    phasor_law()\n")
    assert sum(outcomes.values()) == 7 and outcomes["failed"] >= 3
    for check in ("cached = full", "chunked = full"):
        lines.fnmatch_lines([f"E *AssertionError: {check}: cannot be checked: logits keeps no cache*"])


def test_the_laws_are_all_of_testing():
    import phasor_pytest
    from phasor import testing

    laws = {name for name in testing.__all__ if name.startswith("assert_")} - {"assert_positions"}
    assert {f"assert_{law}" for law in phasor_pytest.LAWS} == laws


def test_without_a_model_the_law_says_what_is_missing(run):
    outcomes, lines = run("def test_law(phasor_law):\n    phasor_law()\n")
    assert outcomes == dict(errors=7)
    lines.fnmatch_lines(["*needs a fixture of yours called phasor_model*"])


def test_a_law_that_is_none_is_named(run):
    outcomes, lines = run(MODEL.format(factor=0.1) + CHOSEN.replace("relative", "relativ"))
    assert outcomes == dict(passed=1, errors=1)
    lines.fnmatch_lines(["*phasor_law must be parametrized with laws of relative, *got 'relativ'*"])


def test_golden_vectors_pass_what_is_right_and_name_the_mistake(run):
    pytest.importorskip("safetensors")
    outcomes, lines = run(GOLDEN)
    assert outcomes == dict(passed=1, failed=2)
    lines.fnmatch_lines(["E *nothing of the gradient comes back through the rotation*"])
    lines.fnmatch_lines(["E *pairs are interleaved (2i, 2i + 1) there and must be halves (i, i + 2)*"])


def test_the_entry_point_names_the_module_and_costs_no_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"phasor_pytest": "phasor_pytest"}
    assert "phasor_pytest" in project["tool"]["setuptools"]["py-modules"]
    source = "import sys, phasor_pytest; print(sorted({'torch', 'phasor', 'numpy'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert limited.run([sys.executable, "-c", source], env=env, check=True).stdout == "[]\n"


def test_no_file_of_the_project_has_the_name_of_a_standard_module():
    """Of an editable installation with a plugin pytest takes docs/NAME.py for a module NAME, and warns of one that is
    imported already."""
    names = {path.stem for path in ROOT.glob("*/*.py")}
    assert "blocks" in names and not names & sys.stdlib_module_names
