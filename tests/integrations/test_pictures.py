"""`patch` of models of pictures, video and sound: the bits of the whole model stay, whatever grid it is given."""

import copy
import pickle
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import phasor
from eye.picture_tables import builders
from eye.test_pictures import packages
from integrations.whole_pictures import gradients
from phasor.tools.patch.arguments import INLINE, MORE, in_whole_lines

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
LEFT = {
    "ltx2_split": MORE,  # addcmul, which rounds once
    "allegro": INLINE,  # thirds of a head, each by rows that it looks up
}


def given_back(model: nn.Module, inputs: dict[str, object]) -> list[Tensor]:
    with torch.no_grad():
        out = model(**copy.deepcopy(inputs))
    values = out if isinstance(out, Tensor) or not hasattr(out, "values") else list(out.values())
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) > 0 and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", list(builders().MODELS) if builders() and find_spec("diffusers") else ["none"])
def test_a_patched_model_has_the_bits_of_its_own_code_on_every_grid(name: str) -> None:
    packages()
    make, inputs = builders().MODELS[name]
    model, grids = make(), [one() for one in inputs]
    before, classes = [given_back(model, grid) for grid in grids], [type(m) for m in model.modules()]
    report = phasor.patch(model, inputs=grids[1])
    assert {row.reason.partition(" (in ")[0].partition(", in ")[0] for row in report.rows} == {LEFT.get(name, "")}
    for grid, own in zip(grids, before, strict=True):
        assert same(given_back(model, grid), own)
    if report.replaced:
        phasor.unpatch(model)
    with pytest.raises(ValueError, match="must be patched"):
        phasor.unpatch(model)
    assert [type(m) for m in model.modules()] == classes


@pytest.mark.parametrize("name", ["flux", "wan", "cogvideox"])  # a global name, one defined in a method, one imported
def test_what_is_patched_calls_no_function_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packages()
    make, inputs = builders().MODELS[name]
    model, given = make(), inputs[0]()
    own = given_back(model, given)
    phasor.patch(model, inputs=given)
    calls = []
    rotate = phasor.tools.patch.rotate_function.apply_rotary_qk
    monkeypatch.setattr(
        "phasor.tools.patch.rotate_function.apply_rotary_qk", lambda *a, **k: calls.append(a) or rotate(*a, **k)
    )
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for one in (model, copied, pickled):
        calls.clear()
        assert same(given_back(one, given), own)
        assert calls


def test_a_processor_that_is_set_later_runs_as_it_is() -> None:
    packages()
    make, inputs = builders().MODELS["flux"]
    model, given = make(), inputs[0]()
    own = given_back(model, given)
    processor = type(model.transformer_blocks[0].attn.processor)
    phasor.patch(model, inputs=given)
    model.transformer_blocks[0].attn.set_processor(processor())
    assert same(given_back(model, given), own)
    phasor.unpatch(model)
    assert type(model.single_transformer_blocks[0].attn.processor) is processor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_of_diffusers_needs_no_inputs(dtype: torch.dtype) -> None:
    packages()
    assert phasor.patch(builders().MODELS["flux"][0]().to(dtype)).replaced == 2


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_complex_products_are_phasors_only_where_pytorch_rounds_each_of_them(threads: int) -> None:
    before, told = torch.get_num_threads(), set[bool]()
    torch.set_num_threads(threads)
    try:
        for pairs in (4, 8, 12, 48, 64):
            for tokens in (3, 33, 1000):
                made = torch.Generator().manual_seed(pairs)
                x = torch.randn(1, tokens, 5, 2 * pairs, generator=made)
                angles = torch.randn(tokens, 1, pairs, generator=made)
                table = torch.polar(torch.ones_like(angles), angles)
                theirs = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table).flatten(-2)
                a, b, cos, sin = x[..., 0::2], x[..., 1::2], table.real, table.imag
                rounded = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
                told.add(whole := in_whole_lines(table, [x]))
                assert not whole or torch.equal(theirs, rounded)
    finally:
        torch.set_num_threads(before)
    assert told == {True, False}


def test_complex_products_run_as_they_are_where_a_gradient_is_asked_for() -> None:
    packages()
    make, inputs = builders().MODELS["z_image"]
    model, given = make(), inputs[0]()
    own = gradients(model, [given])
    assert phasor.patch(model, inputs=given).replaced
    theirs = gradients(model, [given])
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[name], theirs[name]) for name in own)
