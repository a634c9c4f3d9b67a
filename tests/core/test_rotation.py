"""A Rotation as a value: made by keyword, immutable, a pytree, and cut to tokens, rows and heads."""

import copy
import dataclasses
import pickle

import pytest
import torch
from torch.utils import _pytree as pytree

from phasor import Layout, RotarySpec, Rotation, apply_rotary
from phasor.rotary.axes import Listed

from .conftest import FACTORS, SECOND, anywhere, at

SPEC = RotarySpec(head_dim=8, rotary_dim=4, interleaved=True)
TABLE = Rotation.at(SPEC, torch.arange(20))
HEADS = Rotation.from_frequencies(torch.randn(2, 5), torch.randn(6, 2, 4))
SHEARED = Rotation.at(RotarySpec(head_dim=8, second=Listed((0,) * 4, ((1, 4),) * 4)), torch.arange(20))


def same(a, b):
    leaves = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    return a.about() == b.about() and all(torch.equal(x, y) for x, y in leaves)


def test_only_by_keyword_and_immutable():
    with pytest.raises(TypeError, match="positional"):
        Rotation(TABLE.cos, TABLE.sin)
    with pytest.raises(dataclasses.FrozenInstanceError):
        TABLE.cos = TABLE.sin
    with pytest.raises(TypeError, match="not subscriptable"):
        TABLE[1:3]


@pytest.mark.parametrize("rotation", [TABLE, HEADS, SHEARED], ids=["table", "heads", "second"])
def test_copies_pickles_and_trees(rotation):
    assert same(copy.deepcopy(rotation), rotation)
    assert same(pickle.loads(pickle.dumps(rotation)), rotation)
    leaves, tree = pytree.tree_flatten(rotation)
    assert [x is y for x, y in zip(leaves, (rotation.cos, rotation.sin), strict=False)] == [True, True]
    assert len(leaves) == (2 if rotation.second is None else 4)
    assert same(pytree.tree_unflatten(leaves, tree), rotation)
    widened = pytree.tree_map(torch.Tensor.double, rotation)
    assert isinstance(widened, Rotation)
    assert widened.cos.dtype == widened.sin.dtype == torch.float64
    assert pytree.tree_map(lambda t: None, rotation).cos is None  # nothing is checked on the way


def test_replace_checks_again():
    assert TABLE.replace(magnitude=2.0).magnitude == 2.0
    with pytest.raises(ValueError, match="sin must have the shape"):
        TABLE.replace(cos=TABLE.cos[:3])


def test_vmap_over_a_rotation():
    """A rotation is an argument like a tensor, batched along any axis of its tables."""
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.arange(12).view(3, 4))
    x = torch.randn(3, 2, 4, 8)
    batched = torch.func.vmap(lambda r, x: apply_rotary(x, r))(rotation, x)
    assert torch.equal(batched, apply_rotary(x, rotation))


def test_an_exported_program_takes_a_rotation_holds_plain_operations_and_can_be_saved(tmp_path):
    class Turn(torch.nn.Module):
        def forward(self, x, rotation):
            return apply_rotary(x, rotation)

    # of a size at which compiled code holds an operator of phasor's own
    x, rotation = torch.randn(1, 32, 300, 64).bfloat16(), Rotation.at(RotarySpec(head_dim=64), torch.arange(300))
    program = torch.export.export(Turn(), (x, rotation), strict=True)
    assert not [n for n in program.graph.nodes if "phasor" in str(n.target)]
    torch.export.save(program, tmp_path / "turn.pt2")
    loaded = torch.export.load(tmp_path / "turn.pt2").module()
    assert torch.equal(loaded(x, rotation.inverse()), apply_rotary(x, rotation.inverse()))


def test_compiled_code_takes_and_gives_rotations():
    compiled = torch.compile(lambda r: r.inverse().slice(2, 5), fullgraph=True, backend="aot_eager")
    assert same(compiled(TABLE), TABLE.inverse().slice(2, 5))


@pytest.mark.parametrize("rotation", [TABLE, SHEARED], ids=["table", "second"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_take_is_the_rotation_at_these_positions(rotation, dtype):
    rows = torch.tensor([[3, 0, 19], [19, 19, 1]], dtype=dtype)
    for ids in (rows, rows[0], rows[:, :0]):
        taken = rotation.take(ids)
        assert taken.about() == rotation.about()
        assert torch.equal(taken.sin, rotation.sin[ids.long()])
        if rotation.second is not None:
            assert torch.equal(taken.second[1], rotation.second[1][ids.long()])


def test_take_of_heads_and_batches():
    rows = torch.tensor([[4, 0], [1, 1], [2, 3]])
    assert torch.equal(HEADS.take(rows[0]).cos, HEADS.cos[:, rows[0]])
    taken = HEADS.take(rows)
    assert taken.cos.shape == (3, 6, 2, 4)
    assert torch.equal(taken.cos[2], HEADS.cos[:, rows[2]])
    batched = Rotation.at(SPEC, torch.arange(10).view(2, 5))
    assert torch.equal(batched.take(rows[0]).cos, batched.cos[:, rows[0]])


def test_take_passes_gradients():
    cos = TABLE.cos.double().requires_grad_()
    table = TABLE.replace(cos=cos, sin=TABLE.sin.double())
    (gradient,) = torch.autograd.grad(table.take(torch.tensor([3, 3, 5])).cos.sum(), cos)
    assert gradient.sum(-1).tolist() == [0, 0, 0, 4, 0, 2] + [0] * 14


def test_heads_of_a_rank():
    """Tensor parallelism: a rank's heads turned by its share are those of the whole."""
    x = torch.randn(2, 6, 5, 8)
    whole = apply_rotary(x, HEADS)
    for chosen in (range(3), range(3, 6), range(1, 6, 2)):
        part = HEADS.heads(chosen)
        assert part.cos.untyped_storage().data_ptr() == HEADS.cos.untyped_storage().data_ptr()
        assert torch.equal(apply_rotary(x[:, list(chosen)], part), whole[:, list(chosen)])
    assert TABLE.heads(range(3)) is TABLE
    for wrong in (range(5, 7), range(3, 0, -1), range(-1, 2)):
        with pytest.raises(ValueError, match="chosen must be a rising range inside the 6 heads"):
            HEADS.heads(wrong)


@pytest.mark.parametrize("name", [*FACTORS, *SECOND])
def test_a_spec_and_its_rotation_share_one_layout(name):
    spec = (FACTORS | SECOND)[name]
    assert at(spec, anywhere(spec, 0, 9)).layout is spec.layout
    fields = {f.name: getattr(spec, f.name) for f in dataclasses.fields(Layout)}
    assert spec.layout == Layout(**fields)


def test_angles_and_frequencies_take_a_layout_and_a_magnitude():
    angles, layout = torch.rand(5, 4), {"head_dim": 20, "trailing": True, "interleaved": True, "permuted": True}
    for made in (
        Rotation.from_angles(angles, magnitude=1.5, **layout),
        Rotation.from_frequencies(torch.ones(5), angles[0], magnitude=1.5, **layout),
        Rotation.from_angles(torch.cat((angles, angles), -1), form="doubled", magnitude=1.5, **layout),
    ):
        assert made.layout == Layout(rotary_dim=8, **layout)
        assert made.magnitude == 1.5
        torch.testing.assert_close(made.cos[0], 1.5 * angles[0].cos())
    assert Rotation.from_angles(angles, blocks=2).layout.blocks == 2
    with pytest.raises(TypeError, match="interleave"):
        Rotation.from_angles(angles, interleave=True)
