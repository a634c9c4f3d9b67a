"""`patch` of models that no config describes: what turns is observed, and replaced where the bits agree."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from eye.zoo import ZOO
from phasor import Layout
from phasor.eye.call import call_of
from phasor.tools.patch import patch, unpatch
from phasor.tools.patch.arguments import Given, reduced
from phasor.tools.patch.report import COMPLEX
from phasor.tools.patch.rotate_function import RotateFunction

from .models import causal, logits

HEADS, DIM = 4, 8
IDS = torch.tensor([[5, 16, 27, 38, 49, 60, 7]])
INV_FREQ = 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)


# --- a class that nobody registered, around functions that take their tables in many ways


class Own(nn.Module):
    """One attention; a subclass says how q and k turn, in which order of axes, and what it keeps beside its weights."""

    order, base = "bhsd", 10000.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.out = nn.Embedding(64, 32), nn.Linear(32, 96), nn.Linear(32, 64)
        angles = torch.outer(torch.arange(64).float(), INV_FREQ)
        self.angles = angles
        self.cos, self.sin = angles.cos(), angles.sin()

    def turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.qkv(self.embed(ids)).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        axes = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}[self.order]
        back = [axes.index(i) for i in range(4)]
        q, k = (x.to(v.dtype).permute(back) for x in self.turned(q.permute(axes), k.permute(axes)))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def gathered(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos[at].unsqueeze(1), sin[at].unsqueeze(1)
    return halves(q, cos, sin), halves(k, cos, sin)


def stacked(x: Tensor, tables: Tensor) -> Tensor:
    return neighbours(x, tables[0], tables[1])


def of_a_tuple(qk: tuple[Tensor, Tensor], tables: tuple[Tensor, Tensor]) -> list[Tensor]:
    return [halves(x, *tables) for x in qk]


def of_angles(freqs: Tensor, x: Tensor) -> Tensor:
    return halves(x, freqs.cos(), freqs.sin())


def cut(x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
    return halves(x, cos[: x.shape[2]], sin[: x.shape[2]])


def backwards(x: Tensor, cos: Tensor, sin: Tensor, flip: bool = True) -> Tensor:
    return halves(x, cos, -sin if flip else sin)


def of_positions(x: Tensor, at: Tensor, base: float = 10000.0) -> Tensor:
    angles = at[:, None] * base ** (-torch.arange(0, DIM, 2) / DIM)
    return halves(x, angles.cos(), angles.sin())


class Gathered(Own):
    def turned(self, q, k):
        return gathered(q, k, self.cos, self.sin, torch.arange(q.shape[2])[None])


class Stacked(Own):
    def turned(self, q, k):
        tables = torch.stack((self.cos, self.sin))[:, : q.shape[2]]
        return stacked(q, tables), stacked(k, tables)


class OfATuple(Own):
    def turned(self, q, k):
        return of_a_tuple((q, k), (self.cos[: q.shape[2]], self.sin[: q.shape[2]]))


class OfAngles(Own):
    def turned(self, q, k):
        return of_angles(self.angles[: q.shape[2]], q), of_angles(self.angles[: q.shape[2]], x=k)


class Trained(Own):
    """Frequencies that are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.inv_freq = nn.Parameter(INV_FREQ.clone())

    def turned(self, q, k):
        angles = torch.outer(torch.arange(q.shape[2]).float(), self.inv_freq)
        return of_angles(angles, q), of_angles(angles, k)


class Cut(Own):
    def turned(self, q, k):
        return cut(q, self.sin, self.cos), cut(k, self.sin, self.cos)


class TokensThenHeads(Own):
    order = "bshd"

    def turned(self, q, k):
        cos, sin = (t[None, : q.shape[1], None] for t in (self.cos, self.sin))
        return halves(q, cos, sin), halves(k, cos, sin)


class TokensFirst(Own):
    order = "sbhd"

    def turned(self, q, k):
        cos, sin = (t[: q.shape[0], None, None] for t in (self.cos, self.sin))
        return neighbours(q, cos, sin), neighbours(k, cos, sin)


class OfPositions(Own):
    def turned(self, q, k):
        at = torch.arange(q.shape[2])
        return of_positions(q, at, base=self.base), of_positions(k, at, base=self.base)


class Backwards(Own):
    flip = True

    def turned(self, q, k):
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        return backwards(q, cos, sin, flip=self.flip), backwards(k, cos, sin, flip=self.flip)


class Rope(nn.Module):
    def forward(self, x, cos, sin):
        return halves(x, cos[: x.shape[2]], sin[: x.shape[2]])


class AModuleThatRotates(Own):
    def __init__(self) -> None:
        super().__init__()
        self.rope = Rope()

    def turned(self, q, k):
        return self.rope(q, self.cos, self.sin), self.rope(k, self.cos, self.sin)


class Local(Own):
    """A function that the method defines, another that it imports."""

    def turned(self, q, k):
        from eye.halves import rotate_half as half_turned

        def of_two(x, cos, sin):
            return torch.cat((x, x), -1) if cos is None else x * cos + half_turned(x) * sin

        cos, sin = (t[: q.shape[2]].repeat(1, 2) for t in (self.cos, self.sin))
        return of_two(q, cos, sin), of_two(k, cos, sin)


class Imported(Own):
    def turned(self, q, k):
        from integrations.tables import neighbours as turned_by

        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        return turned_by(q, cos, sin), turned_by(k, cos, sin)


class Processor:
    """What diffusers' attentions keep: no module, and called by one."""

    def __call__(self, model, q, k):
        cos, sin = model.cos[: q.shape[2]], model.sin[: q.shape[2]]
        return halves(q, cos, sin), halves(k, cos, sin)


class Processed(Own):
    def __init__(self) -> None:
        super().__init__()
        self.processor = Processor()

    def turned(self, q, k):
        return self.processor(self, q, k)


def by_matrices(x: Tensor, matrices: Tensor) -> Tensor:
    return (matrices * x.unflatten(-1, (-1, 1, 2)).float()).sum(-1).flatten(-2).to(x.dtype)


class Matrices(Own):
    def turned(self, q, k):
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        matrices = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
        return by_matrices(q, matrices), by_matrices(k, matrices)


def side_by_side(x: Tensor, table: Tensor) -> Tensor:
    sin, cos = table.chunk(2, -1)
    return neighbours(x, cos, sin)


class SideBySide(Own):
    def turned(self, q, k):
        table = torch.cat((self.sin, self.cos), -1)[: q.shape[2]]
        return side_by_side(q, table), side_by_side(k, table)


class OfEachHead(Own):
    """Heads that turn by tables of their own."""

    def turned(self, q, k):
        times = torch.arange(1, HEADS + 1)[:, None, None] * self.angles[: q.shape[2]] / HEADS
        return halves(q, times.cos(), times.sin()), halves(k, times.cos(), times.sin())


class InARow(Own):
    """The channels of all heads turn before they are parted."""

    def turned(self, q, k):
        angles = torch.outer(torch.arange(q.shape[2]).float(), 100.0 ** (-torch.arange(0, HEADS * DIM, 2) / 32))
        rows = (x.transpose(1, 2).flatten(2) for x in (q, k))
        return tuple(
            neighbours(x, angles.cos(), angles.sin()).unflatten(-1, (HEADS, DIM)).transpose(1, 2) for x in rows
        )


WAYS = [
    Local, Imported, Processed, Matrices, SideBySide, OfEachHead, InARow,
    Gathered, Stacked, OfATuple, OfAngles, Trained, Cut, TokensThenHeads, TokensFirst, OfPositions, Backwards,
    AModuleThatRotates,
]  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("own", WAYS)
def test_a_class_of_ones_own_runs_on_phasor(own):
    """Other lengths and batches than those that were seen give the same bits, too; so does half precision."""
    model, longer = own().eval(), torch.arange(40).view(2, 20)
    before = [model(IDS), model(longer), model(longer[:, :1]), copy.deepcopy(model).bfloat16()(longer)]
    report = patch(model)
    assert report.replaced == len(report.rows) == 1 and {row.kernel for row in report.rows} == {"apply_rotary"}
    assert "1 of 1 replaced, of what was observed to rotate" in report.summary()
    after = [model(IDS), model(longer), model(longer[:, :1]), copy.deepcopy(model).bfloat16()(longer)]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    unpatch(model)
    assert type(model) is own and torch.equal(model(IDS), before[0])


@pytest.mark.parametrize("change", ["in place", "memory", "sines"])
def test_a_table_that_changes_is_read_again(change):
    """What is made of it is kept beside it, and left with it."""
    given = Given(("x", "cos", "sin"), (), (("x",),), (("cos",), ("sin",)), "bhsd")
    rotate = given.stand_in(RotateFunction((), 1, None, "half", Layout(head_dim=4)), lambda *_: None, False)
    x, cos, sin = torch.randn(1, 2, 5, 4), torch.randn(1, 1, 5, 2), torch.randn(1, 1, 5, 2)
    assert torch.equal(rotate(x, cos, sin), rotate(x, cos, sin))
    if change == "in place":
        cos.mul_(2)
    elif change == "memory":
        cos.data = 2 * cos
    else:
        sin = 2 * sin
    assert torch.equal(rotate(x, cos, sin), rotate(x, cos.clone(), sin.clone()))


@pytest.mark.parametrize("path", [("cos",), ("cos", "real")])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_table_leaves_memory_with_the_call_that_made_it(path, mode):
    """What is kept beside it does not hold it: a model makes new ones in every call."""
    ends = (path, ("sin",) if len(path) == 1 else ("cos", "imaginary"))
    given = Given(("x", "cos", "sin"), (), (("x",),), ends, "bhsd")
    rotate = given.stand_in(RotateFunction((), 1, None, "half", Layout(head_dim=32)), lambda *_: None, False)
    with mode():
        cos = torch.randn(1, 1, 4, 16, dtype=torch.float32 if len(path) == 1 else torch.complex64)
        assert rotate(torch.randn(1, 2, 4, 32), cos, torch.randn(1, 1, 4, 16)) is not None
    gone = weakref.ref(cos)
    del cos
    gc.collect()
    assert gone() is None


def test_phasor_does_rotate(monkeypatch):
    """With the stand-in's result doubled the model's output changes: it is what runs."""
    from phasor.tools.patch import rotate_function

    model = Gathered().eval()
    patch(model)
    before, own = model(IDS), rotate_function.apply_rotary_qk
    monkeypatch.setattr(rotate_function, "apply_rotary_qk", lambda q, k, *a, **b: own(2 * q, k, *a, **b))
    assert not torch.equal(model(IDS), before)


@pytest.mark.parametrize("own", [Trained, Gathered])
def test_gradients_are_those_of_the_models_own_code(own):
    def gradients(model: nn.Module) -> list[Tensor]:
        model.zero_grad()
        model(IDS).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    model = own()
    before = gradients(model)
    assert patch(model).replaced == 1
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), before, strict=True))


def test_what_was_not_seen_is_left_to_the_models_own_function():
    """Another value of a plain argument than the one that it was compared with."""
    model, other = Backwards().eval(), Backwards().eval()
    patch(model)
    model.flip = other.flip = False
    assert torch.equal(model(IDS), other(IDS))
    base, changed = OfPositions().eval(), OfPositions().eval()
    patch(base)
    base.base = changed.base = 500.0
    assert torch.equal(base(IDS), changed(IDS))


def test_copies_pickles_and_compiled_models_stay_patched():
    model = Gathered().eval()
    patch(model)
    expected = model(IDS)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.compile(model, backend="eager")):
        assert torch.equal(made(IDS), expected)
        unpatch(made)


# --- what stays


def in_double(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return halves(x.double(), cos.double(), sin.double()).to(x.dtype)


def scaled(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return 1.5 * halves(x, cos, sin)


class InDouble(Own):
    def turned(self, q, k):
        return tuple(in_double(x, self.cos[: x.shape[2]], self.sin[: x.shape[2]]) for x in (q, k))

    def forward(self, ids):
        q, k, v = self.qkv(self.embed(ids)).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        q, k = in_double(q, cos, sin), in_double(k, cos, sin)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Scaled(Own):
    def turned(self, q, k):
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        return scaled(q, cos, sin), scaled(k, cos, sin)


class Inline(Own):
    def turned(self, q, k):
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        a, b = q.chunk(2, -1)
        c, d = k.chunk(2, -1)
        q = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
        return q, torch.cat((c * cos - d * sin, c * sin + d * cos), -1)


def complex_product(x: Tensor, table: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * table).flatten(-2)


class Complex(Own):
    def turned(self, q, k):
        table = torch.complex(self.cos, self.sin)[: q.shape[2]]
        return complex_product(q.contiguous(), table), complex_product(k.contiguous(), table)


class OwnFrequencies(Own):
    """A method that forms its tables of frequencies which its module may train or load."""

    def __init__(self) -> None:
        super().__init__()
        self.inv_freq = nn.Parameter(INV_FREQ.clone())

    def one(self, x, at):
        angles, (a, b) = at[:, None] * self.inv_freq, x.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)

    def turned(self, q, k):
        return self.one(q, torch.arange(q.shape[2])), self.one(k, torch.arange(k.shape[2]))


STAYS = [
    (InDouble, "in the last bits"),
    (Scaled, r"it does more than rotate, or otherwise than phasor \(in scaled \(test_observed.py:\d+\)\)"),
    (Inline, r"its tables are formed where it rotates, in Inline.turned \(test_observed.py:\d+\); call phasor"),
    (Complex, f"{COMPLEX} .in complex_product"),
    (OwnFrequencies, r"its tables are formed where it rotates, in OwnFrequencies.one"),
]


@pytest.mark.parametrize("own, reason", STAYS)
def test_what_is_not_bit_equal_stays_and_the_row_says_why(own, reason):
    import re

    model = own().eval()
    before, held = model(IDS), dict(vars(model))
    report = patch(model)
    assert report.replaced == 0 and all(re.search(reason, row.reason) for row in report.rows), str(report)
    assert type(model) is own and torch.equal(model(IDS), before) and vars(model).keys() == held.keys()


def test_a_method_that_something_has_set_on_the_instance():
    model = Gathered().eval()
    model.turned = model.turned
    assert "its turned was replaced by something else" in patch(model).rows[0].reason


def test_errors_leave_the_model_as_it_was():
    model = Gathered().eval()
    for given, said in (
        ({"angles": "exact"}, "angles must be left at 'float32' for a model whose config is not read"),
        ({"fuse_norm": True}, "fuse_norm must be left at False"),
        ({"seq_len": 9}, "seq_len must be left at None"),
        ({"inputs": torch.zeros(2, 2)}, "the model could not be run: .*; give inputs=, what its forward takes"),
        ({"compare": "no tokens"}, "inputs must be token ids"),
    ):
        with pytest.raises(ValueError, match=said):
            patch(model, **given)
        assert type(model) is Gathered
    with pytest.raises(ValueError, match="model must rotate its queries and keys, and in this Linear nothing was seen"):
        patch(nn.Linear(4, 4))


def test_logits_are_compared_on_inputs_of_any_form():
    shift = patch(Gathered().eval(), compare=IDS).shift
    assert shift is not None and shift.largest == 0
    assert patch(Gathered().eval(), inputs={"ids": IDS}, compare={"ids": IDS}).shift.largest == 0


def test_a_transformers_model_whose_config_is_not_read():
    pytest.importorskip("transformers")
    model = causal("llama")
    before = logits(model)
    model.config.model_type = "nobodys"
    model.config.rope_parameters["rope_theta_of_nobody"] = 3.0
    report = patch(model)
    assert report.observed and report.replaced == len(report.rows) == 2
    assert {row.what for row in report.rows} == {"apply_rotary_pos_emb"} and torch.equal(logits(model), before)


def test_axes_for_heads_are_left_out_of_a_table():
    assert reduced(torch.zeros(1, 5, 1, 4), -3).shape == (5, 4)
    assert reduced(torch.zeros(1, 3, 5, 4), -2) is None  # each head turns otherwise


# --- the zoo

FEW = ["nanochat", "megatron", "class token that passes", "neox", "in place", "llama", "into an empty tensor", "qwen3"]
TURNING = [name for name, case in ZOO.items() if case.truth.turns]


def results(model: nn.Module, inputs: tuple) -> list[Tensor]:
    with torch.no_grad():
        out = call_of(model, inputs).run()
    return [t for t in tree_leaves(vars(out) if hasattr(out, "logits") else out) if isinstance(t, Tensor)]


def replaced(name: str) -> tuple[int, int]:
    """How many rows of a model are replaced, and how many there are; its results are the same, bit for bit."""
    model, inputs = ZOO[name].model(), ZOO[name].inputs
    before = results(model, inputs)
    report = patch(model, inputs=inputs)
    assert all(torch.equal(a, b) for a, b in zip(results(model, inputs), before, strict=True))
    if report.replaced:
        unpatch(model)
    assert all(torch.equal(a, b) for a, b in zip(results(model, inputs), before, strict=True))
    return report.replaced, len(report.rows)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (i > 4)) for i, n in enumerate(FEW)])
def test_a_few_models_of_the_zoo(name):
    done, rows = replaced(name)
    assert done == (0 if name in ("neox", "qwen3", "in place") else rows)


@pytest.mark.slow
def test_every_model_of_the_zoo_that_turns():
    found = {name: replaced(name) for name in TURNING}
    whole = [name for name, (done, rows) in found.items() if done == rows]
    some = [name for name, (done, rows) in found.items() if 0 < done < rows]
    print(f"{len(found)} models: {len(whole)} replaced, {len(some)} in part, the rest say why not")
    assert len(whole) >= 42 and len(whole) + len(some) >= 43
