"""Composite configs at the command line: which parts are shown, which are named, and how a refusal ends."""

import json

import pytest

from phasor import RotarySpec
from phasor.rotary.axes import Axial, Listed
from phasor.tools.inspect.curves import decay
from phasor.tools.inspect.disagreement import compare

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 128, "rope_theta": 10000.0,
}  # fmt: skip
PIXTRAL = {"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
LLAVA = {"model_type": "llava", "text_config": LLAMA, "vision_config": PIXTRAL}


@pytest.fixture
def inspected(phasor, tmp_path):
    """Look at configs that are given as dictionaries: exit code, output, errors."""

    def run(*args):
        words = []
        for n, arg in enumerate(args):
            if isinstance(arg, dict):
                words.append(tmp_path / f"{n}.json")
                words[-1].write_text(json.dumps(arg))
            else:
                words.append(arg)
        return phasor("inspect", *words)

    return run


def test_the_text_part_is_shown_and_the_others_are_named(inspected):
    code, out, _ = inspected(LLAVA)
    assert code == 0 and "model        llama, 2 of 2 layers rotate" in out and "text_config, one of 2 parts" in out
    assert "\nother parts" in out and "\n  vision_config  pixtral, 1 of 1 layers: all 16 channels, halves" in out
    assert "\n  (top level)    no rotary: this config only holds text_config, vision_config" in out


def test_one_part_is_singular(inspected):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 128}
    code, out, _ = inspected({"model_type": "chameleon", **sizes, "vq_config": {"model_type": "chameleon_vqgan"}})
    assert code == 0 and "\npart         the top level, with 1 part inside\n" in out


def test_part_and_all(inspected):
    assert "model        pixtral" in inspected(LLAVA, "--part", "vision_config")[1]
    code, out, _ = inspected(LLAVA, "--part", "all")
    assert code == 0 and out.count("\nrotation") == 2 and out.count("model        ") == 2
    code, _, err = inspected(LLAVA, "--part", "vison_config")
    assert code == 2 and "did you mean" in err


def test_a_text_part_without_rotary_is_no_fault(inspected):
    code, out, err = inspected(LLAVA | {"text_config": {"model_type": "bert"}})
    assert code == 0 and not err
    assert out.startswith("not shown    /") and ".json: bert uses learned absolute" in out
    assert "model        pixtral" in out


def test_a_text_part_that_is_not_understood_is_one(inspected):
    wrong = LLAVA | {"text_config": LLAMA | {"rope_thetta": 1.0}}
    code, out, err = inspected(wrong)
    assert code == 2 and err.count("\n") == 1 and "rope_thetta" in err and "model        pixtral" in out
    assert inspected(wrong, "--diff", LLAVA)[0] == 2
    code, out, err = inspected(wrong, "--part", "text_config")
    assert code == 2 and not out and "rope_thetta" in err


def test_nothing_to_show(inspected):
    code, out, err = inspected({"model_type": "llava", "text_config": {"model_type": "bert"}})
    assert code == 2 and not out and "learned absolute positions" in err


def test_json_holds_the_other_parts(inspected):
    data = json.loads(inspected(LLAVA, "--json")[1])
    assert data["part"] == "text_config" and data["not_shown"] is None
    assert data["other_parts"]["vision_config"]["rotations"][0]["spec"]["axes"]["name"] == "listed"
    assert data["other_parts"]["vision_config"]["rotations"][0]["trained_length"] is None
    assert data["other_parts"][""].startswith("no rotary")


def test_diff_names_other_parts_and_what_stands_beside_the_layers(inspected):
    other = LLAVA | {"vision_config": PIXTRAL | {"rope_theta": 500.0}}
    out = inspected(LLAVA, "--diff", other)[1]
    assert "both rotate alike" in out and "vision_config: differs" in out
    assert "vision_config: only in the second" in inspected(LLAMA, "--diff", other)[1]
    out = inspected(LLAVA, "--diff", other, "--part", "vision_config")[1]
    assert "base: 10000.0  |  500.0" in out and "text_config: same" in out
    llama4 = {
        "model_type": "llama4_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16,
        "num_hidden_layers": 4, "max_position_embeddings": 128, "attn_temperature_tuning": True,
    }  # fmt: skip
    out = inspected(llama4, "--diff", llama4 | {"attn_temperature_tuning": False})[1]
    assert "temperatures: log_floor(beta=0.1, length=8192, offset=1) in layers 3  |  none" in out


def test_compare_sees_the_factors_that_have_no_frequency():
    plain = RotarySpec(head_dim=8, interleaved=True)
    back = compare(plain, plain.replace(reverse=True))  # 1 and -1 rad per token: 2 apart after one
    assert (back.pair, back.position) == (0, 1) and "rotate the other way" in back.describe()
    assert compare(plain, plain.replace(permuted=True)).permuted
    assert compare(plain, plain.replace(learned=True)).learned
    halves = RotarySpec(head_dim=8)
    assert compare(halves, halves.replace(blocks=2)).layout
    scaled = compare(halves, halves.replace(coordinates="real", position_scale=2.0))  # 1 against 2 rad per unit
    assert scaled.position == 0.1 and not scaled.same
    axes = RotarySpec(head_dim=4, axes=Listed((0, 1)))
    assert not compare(axes, axes.replace(second=Listed((1, 0)))).same


def test_decay_along_one_axis_leaves_the_other_pairs_alone():
    import math

    import torch

    spec = RotarySpec(head_dim=8, axes=Axial((2, 2)))  # each axis: 1 and 0.01 rad per step
    moved = (math.cos(3) + math.cos(0.03)) / 2
    at = torch.tensor([3])
    assert decay(spec, at).item() == pytest.approx(moved, abs=1e-15)
    assert decay(spec, at, axis=1).item() == pytest.approx((1 + moved) / 2, abs=1e-15)
    halfway = decay(spec.replace(coordinates="real"), torch.tensor([1.5])).item()
    assert halfway == pytest.approx((math.cos(1.5) + math.cos(0.015)) / 2, abs=1e-15)


def test_decay_where_the_members_of_a_pair_turn_apart():
    """E[q . k] of equal random vectors is tr(M(m)^T M(n)) / 2 = (cos d a + cos d b) / 2, by hand and by averages."""
    import math

    import torch

    from phasor import Rotation, apply_rotary

    spec = RotarySpec(head_dim=4, axes=Listed((0, 0), ((0, 2), (0, 2))), second=Listed((0, 0), ((1, 2), (1, 2))))
    expected = (math.cos(5) + math.cos(0.05)) / 2
    assert decay(spec, torch.tensor([5])).item() == pytest.approx(expected, abs=1e-15)
    basis = torch.eye(4, dtype=torch.float64).reshape(4, 1, 1, 4)  # the average over an orthonormal basis
    q, k = (apply_rotary(basis, Rotation.at(spec, torch.tensor([m]), dtype=torch.float64)) for m in (2, 7))
    assert (q * k).sum(-1).mean().item() == pytest.approx(expected, abs=1e-12)
