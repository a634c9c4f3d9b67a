"""A search that is killed goes on where it was, with the same result to the bit."""

import json
import os
import random
import signal
import sys

import pytest
import torch

from house import PYTHONPATH

pytest.importorskip("transformers")

import limited
from doctor.declared import HERE, folder
from phasor_lab.fitting import fit
from phasor_lab.fitting.fit import FEWEST

TOKENS = torch.randint(50, (600,), generator=torch.Generator().manual_seed(1))
EVALUATIONS = FEWEST + 14


class Killed(BaseException):
    """What nothing catches."""


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)).eval()


def search(model, journal=None, killed_at=0, **options):
    def tell(done, most):
        if done == killed_at:
            raise Killed

    return fit(model, TOKENS, length=64, evaluations=EVALUATIONS, journal=journal, tell=tell, **options)


def kept(path):
    return len(json.loads(path.read_bytes())["values"])


def test_killed_at_ten_random_evaluations(model, tmp_path):
    whole, path = search(model), tmp_path / "c.json.journal"
    for at in sorted(random.Random(0).sample(range(2, EVALUATIONS + 1), 10)):
        with pytest.raises(Killed):
            search(model, path, killed_at=at)
        assert kept(path) == at - 1
        path.with_name(f"{path.name}.123.partial").write_bytes(b"{")  # what one leaves that is killed while it writes
    assert search(model, path) == whole and not list(tmp_path.iterdir())


def test_what_is_known_is_not_computed_again(model, tmp_path, monkeypatch):
    from phasor_lab.fitting.loss import DivisorLoss

    path, computed, gradient = tmp_path / "journal", [], DivisorLoss.gradient
    with pytest.raises(Killed):
        search(model, path, killed_at=EVALUATIONS)
    monkeypatch.setattr(DivisorLoss, "gradient", lambda *a: computed.append(1) or gradient(*a))
    search(model, path)
    assert not computed
    search(model)
    assert len(computed) == 2 * (EVALUATIONS - FEWEST)  # at both lengths


@pytest.mark.parametrize("change", [{"seed": 1}, {"inside": 0.1}, {"attention": 1.0}, {"other": True}])
def test_a_journal_of_another_search_is_refused(change, model, tmp_path):
    path = tmp_path / "journal"
    with pytest.raises(Killed):
        search(model, path, killed_at=EVALUATIONS)
    before = path.read_bytes()
    if change.pop("other", False):
        with torch.no_grad():
            weight = model.lm_head.weight
            weight.mul_(1.01)
    try:
        with pytest.raises(ValueError, match=f"{path} holds the evaluations of another search"):
            search(model, path, **change)
    finally:
        if not change:
            with torch.no_grad():
                weight.div_(1.01)
    assert path.read_bytes() == before


def test_another_file_is_refused_and_kept(model, tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{path} must be JSON as phasor wrote it, got: .*; delete it"):
        search(model, path)
    assert path.read_text(encoding="utf-8") == "mine\n"


KILLING = """
import os, signal, sys
import phasor_lab.fitting as room
at = int(sys.argv[4])
def tell(done, most):
    if done == at:
        os.kill(os.getpid(), signal.SIGKILL)
room.fit_folder(sys.argv[1], sys.argv[2], sys.argv[3], length=512, evaluations=24, tell=tell)
"""


@pytest.mark.slow
def test_processes_that_are_killed_write_the_same_bytes(tmp_path):
    place, text = folder("plain", {}, tmp_path / "m"), HERE / "held_out.txt"
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}

    def run(out, at=0):
        return limited.run([sys.executable, "-c", KILLING, place, text, out, str(at)], env=env).returncode

    for at in sorted(random.Random(1).sample(range(2, 25), 10)):
        assert run(tmp_path / "killed.json", at) == -signal.SIGKILL
        assert not (tmp_path / "killed.json").exists() and kept(tmp_path / "killed.json.journal") == at - 1
    assert run(tmp_path / "killed.json") == 0 == run(tmp_path / "whole.json")
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert json.loads((tmp_path / "whole.json").read_text())["max_position_embeddings"] == 512
    assert not list(tmp_path.glob("*.journal"))
