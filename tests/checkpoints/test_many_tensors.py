"""A checkpoint of very many tensors: the work grows with their number, and nothing is done again for each of them."""

import json
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file

from phasor.support.checks import keys_once
from phasor.tools.checkpoints import convert, detect, output, proof, qk_tensors
from phasor.tools.checkpoints.formats import transformers

from . import synthetic

LAYERS, MORE = 4, 500


@pytest.fixture
def folder(tmp_path):
    """Small tensors beside q and k, as of experts and of scales."""
    folder = synthetic.write(tmp_path / "model", layers=LAYERS, hidden=64, heads=4, kv_heads=2, wide=64)
    shards = sorted(folder.glob("model*.safetensors"))
    held = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    for path in (*shards, folder / "model.safetensors.index.json"):
        path.unlink()
    held |= {f"model.layers.{i % LAYERS}.mlp.experts.{i}.scale": torch.full((2,), i * 1.0) for i in range(MORE)}
    save_file(held, folder / "model.safetensors")
    return folder


def counted(monkeypatch, module, name):
    """What a function of a module is called with, one call after the other."""
    calls, real = [], getattr(module, name)

    def call(*given, **named):
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def test_each_header_is_read_once(folder, tmp_path, monkeypatch):
    calls = counted(monkeypatch, transformers, "read_header")
    convert(folder, tmp_path / "out", to="interleaved")
    assert len(calls) == 2  # the source, and the result for its proof
    assert len({path for (path,) in calls}) == 2


def test_a_file_is_not_opened_for_every_tensor(folder, tmp_path, monkeypatch):
    calls, written = (counted(monkeypatch, module, "opened") for module in (proof, output))
    convert(folder, tmp_path / "out", to="interleaved")
    assert 0 < len(calls) + len(written) < MORE / 2
    report = json.loads((tmp_path / "out/phasor-proof.json").read_text())
    assert report["tensors"]["moved"] == 2 * LAYERS and report["tensors"]["byte_identical"] > MORE


def test_an_attention_is_looked_for_among_its_own_tensors(folder, monkeypatch):
    calls = counted(monkeypatch, qk_tensors, "pieces")
    detect(folder)
    assert len(calls) == LAYERS and sum(len(shapes) for _, _, shapes, *_ in calls) < MORE


def test_a_key_that_stands_twice_is_found_in_one_pass():
    compared = Counter()

    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared["times"] += 1
            return str.__eq__(self, other)

    pairs = [(Key(n), 0) for n in [*range(1000), 999]]
    with pytest.raises(ValueError, match="the key '999' stands twice"):
        keys_once(pairs)
    assert compared["times"] < 10 * len(pairs)
