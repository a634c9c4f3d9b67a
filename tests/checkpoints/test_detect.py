"""Detection: honest about weights that tell nothing, sure about those that do, and loud where they contradict."""

import json

import pytest
import torch

from phasor.tools.checkpoints import convert, detect
from phasor.tools.checkpoints.detection import together, together_and_apart, verdict

from . import synthetic
from .models import tensors_of, write_folder


@pytest.fixture
def untrained(tmp_path):
    return synthetic.write(tmp_path / "model", layers=4, hidden=256, heads=4, kv_heads=2, wide=64)


def test_untrained_weights_cannot_tell(untrained):
    found = detect(untrained)
    assert (found.said, found.weights, found.odd, found.contradicts) == ("halves", "", (), False)
    assert "cannot tell" in found.describe() and found.z["q and k"].keys() == {"halves", "interleaved"}


@pytest.fixture
def twin(trained, tmp_path):
    """The trained model in the other layout, with no word about it."""
    convert(trained, tmp_path / "twin", to="interleaved")
    (tmp_path / "twin/phasor.json").unlink()
    return tmp_path / "twin"


def test_trained_weights_tell(trained, twin):
    found, other = detect(trained), detect(twin)
    assert (found.weights, found.contradicts) == ("halves", False) and "caution" not in found.describe()
    assert (other.weights, other.contradicts) == ("interleaved", True) and "caution" in other.describe()


def test_a_conversion_that_was_half_done(trained, twin, tmp_path):
    ours, theirs = tensors_of(trained), tensors_of(twin)
    mixed = {name: theirs[name] if "q_proj" in name else tensor for name, tensor in ours.items()}
    found = detect(write_folder(tmp_path / "mixed", json.loads((trained / "config.json").read_text()), mixed))
    assert found.odd == ("q: interleaved", "k: halves") and found.weights == "" and found.contradicts


@pytest.mark.parametrize("block", [1, 32])
def test_scales_are_multiplied_in(block, trained, twin, tmp_path):
    """Rows, or blocks of rows, in float8, which use more or less of its range: the same weights by their scales."""
    for folder, layout in ((trained, "halves"), (twin, "interleaved")):
        tensors = {}
        for name, tensor in tensors_of(folder).items():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                blocks = tensor.unflatten(0, (-1, block))
                scale = blocks.abs().amax((1, 2)) / 448 * 2.0 ** torch.randint(0, 6, (len(blocks),))
                tensors[f"{name}_scale_inv"] = scale[:, None]
                tensor = (blocks / scale[:, None, None]).flatten(0, 1).to(torch.float8_e4m3fn)
            tensors[name] = tensor
        config = {
            **json.loads((folder / "config.json").read_text()),
            "quantization_config": {"weight_block_size": [32, 64]},
        }
        found = detect(write_folder(tmp_path / layout, config, tensors))
        assert (found.weights, found.odd) == (layout, ())


def test_a_mark_is_believed_and_checked(trained, twin):
    (twin / "phasor.json").write_text('{"layout": "interleaved"}')
    found = detect(twin)
    assert (found.said, found.weights, found.contradicts) == ("interleaved", "interleaved", False)


def test_verdicts_need_both_bars():
    assert (
        verdict({"halves": 3.9, "interleaved": -9.0})
        == verdict({"halves": 9.0, "interleaved": 7.1})
        == verdict({})
        == ""
    )
    assert verdict({"halves": 4.1, "interleaved": 2.0}) == "halves"
    assert together([{}, {}]) == {}


def test_no_layout_is_named_where_q_or_k_leans_to_the_other():
    """The differences are those of a model of 109 steps of which only q was converted: q 1.7, k -5.9, both -3.0."""
    k, both = {"halves": 0.2, "interleaved": 6.1}, {"halves": 1.5, "interleaved": 4.5}
    assert verdict(both) == "interleaved" and together_and_apart({}) == ""
    assert together_and_apart({"q and k": both, "q": {"halves": 1.9, "interleaved": 0.2}, "k": k}) == ""
    assert together_and_apart({"q and k": both, "q": {"halves": 0.2, "interleaved": 1.9}, "k": k}) == "interleaved"


def test_few_pairs_cannot_tell(tmp_path):
    folder = synthetic.write(tmp_path / "model", layers=1, hidden=24, heads=4, kv_heads=4, wide=8)
    assert detect(folder).z == {} and detect(folder).weights == ""


def test_the_command_line(twin, phasor):
    code, said, _ = phasor("convert", twin, "--dry-run")
    assert code == 1 and said.rstrip() == detect(twin).describe()
    code, said, err = phasor("convert", twin, twin)
    assert code == 2 and not said and err.startswith("phasor: --to is missing")
