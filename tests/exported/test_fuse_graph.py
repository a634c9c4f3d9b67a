"""`phasor.fuse`: rotations of PyTorch graphs become the operator, of any form; what is not proved stays."""

import operator
import sys
from functools import partial
from shutil import which

import pytest
import torch
from torch import fx, nn

import limited
import phasor
from eye.zoo import ZOO
from phasor.tools.fuse import compiled
from phasor.tools.fuse.fuse import found
from phasor.tools.fuse.graph import Graph, other
from phasor.tools.fuse.rewrite import rewrite
from phasor.tools.fuse.sites import Table

ROTATE = torch.ops.phasor.rotate.default
POSITIONS = torch.arange(7)[None] * 5
# head_dim, rotary_dim, trailing, interleaved, blocks, permuted, per_head: what the operator is told of the zoo's models
FORMS = {
    "llama": [8, 8, 0, 0, 1, 0, 0], "tables in bfloat16": [8, 8, 0, 0, 1, 0, 0],
    "last channels": [8, 4, 1, 0, 1, 0, 0], "gptj": [8, 4, 0, 1, 1, 0, 0], "complex halves": [8, 8, 0, 0, 1, 0, 0],
    "complex buffer": [8, 8, 0, 1, 1, 0, 0], "rows and columns in blocks": [4, 4, 0, 0, 1, 0, 0],
    "nanochat": [8, 8, 0, 0, 1, 0, 0], "packed documents": [8, 8, 0, 0, 1, 0, 0],
    "turned twice": [8, 8, 0, 0, 1, 0, 0], "two by two by hand": [8, 8, 0, 1, 1, 0, 0],
    "bfloat16": [8, 8, 0, 0, 1, 0, 0],
}  # fmt: skip
LATER = (
    "tables in bfloat16",
    "complex halves",
    "nanochat",
    "packed documents",
    "bfloat16",
    "reflection",
    "angles of the data",
)
TWICE = ("rows and columns in blocks", "turned twice")  # two operators for q and for k of each layer
LEFT = ("two angles in a pair", "shear", "reflection", "in other planes", "angles of the data", "alibi", "in place")


def captured(name):
    """What torch.compile captures of a model of the zoo, its inputs, and what it gives."""
    graphs, case = [], ZOO[name]

    def keep(module, inputs):
        graphs.append((module, inputs))
        return module

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(case.model().eval(), backend=keep)(*case.inputs)
    return graphs[0]


def fused(module, inputs):
    graph = Graph(module, dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)))
    with torch.no_grad():
        before = module(*inputs)
        findings, sites = found(graph, graph.ends)
        rewrite(module, sites)
        return findings, sites, before, module(*inputs)


def soon(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LATER)) for name in names]


@pytest.mark.parametrize("name", soon(FORMS))
def test_of_any_form_it_becomes_the_operator_and_the_outputs_stay(name):
    module, inputs = captured(name)
    findings, sites, before, after = fused(module, inputs)
    nodes = module.graph.find_nodes(op="call_function", target=ROTATE)
    assert [node.args[3] for node in nodes] == [FORMS[name]] * (8 if name in TWICE else 4)
    assert len(sites) == len(nodes) and all(finding.verdict == "right" for finding in findings)
    if all(finding.difference.size == 0 for finding in findings):
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    else:  # products and sums of complex numbers and einsum are rounded otherwise
        assert all(torch.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", soon(LEFT))
def test_what_is_no_rotation_or_written_in_place_stays(name):
    module, inputs = captured(name)
    code = module.code
    findings, sites, before, after = fused(module, inputs)
    assert not sites and all(finding.verdict == "not shown" for finding in findings)
    assert module.code == code and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def turned(x, cos, sin):
    half = x.chunk(2, -1)
    return x * cos + torch.cat((-half[1], half[0]), -1) * sin


class Rotates(nn.Module):
    """Heads by tables that are given."""

    def forward(self, x, cos, sin):
        return turned(x, cos, sin)


class Attends(nn.Module):
    """Keys and queries turned by positions that are given; inv_freq is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("inv_freq", 100.0 ** (-torch.arange(4) / 4))

    def heads(self, x):
        parts = self.qkv(x).chunk(3, -1)
        return [parts[i].unflatten(-1, (2, 8)).transpose(1, 2) for i in range(3)]

    def forward(self, x, positions):
        q, k, v = self.heads(x)
        angles = torch.cat([(positions[..., None].float() * self.inv_freq)[:, None]] * 2, -1)
        q, k = (turned(t, angles.cos(), angles.sin()) for t in (q, k))
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    tokens = torch.export.Dim("tokens", max=1024)
    return torch.export.export(Attends(), (torch.randn(1, 7, 16), POSITIONS), dynamic_shapes=({1: tokens}, {1: tokens}))


def test_an_exported_program_is_the_same_at_other_sizes_and_positions(program, tmp_path):
    new, report = phasor.fuse(program)
    assert report.fused == 2 and report.outputs == "all outputs equal to the bit"
    assert str(report).startswith("ExportedProgram: 2 of 2 rotations fused, each equal to the bit\nnodes ")
    torch.export.save(new, tmp_path / "fused.pt2")
    given = torch.randn(1, 31, 16), torch.randint(0, 10**6, (1, 31))
    for one in (new, torch.export.load(tmp_path / "fused.pt2")):
        assert len(one.graph.find_nodes(op="call_function", target=ROTATE)) == 2
        assert torch.equal(one.module()(*given), program.module()(*given))
    assert not program.graph.find_nodes(op="call_function", target=ROTATE)


@pytest.mark.slow
def test_another_process_loads_it_behind_one_import(program, tmp_path):
    torch.export.save(phasor.fuse(program)[0], tmp_path / "fused.pt2")
    code = f"import phasor.kernels, torch; torch.export.load({str(tmp_path / 'fused.pt2')!r})"
    limited.run([sys.executable, "-c", code], check=True)


def test_a_rotation_that_is_the_output_keeps_the_signature():
    tables = torch.randn(7, 4)
    given = (torch.randn(2, 3, 7, 8), torch.cat((tables, tables), -1), torch.cat((tables, tables), -1))

    class Doubles(Rotates):
        def forward(self, x, cos, sin):
            return super().forward(x, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1))

    new, _ = phasor.fuse(torch.export.export(Doubles(), (given[0], tables, tables)))
    assert torch.equal(new.module()(given[0], tables, tables), turned(*given))
    with pytest.raises(ValueError, match=r"no rotation to fuse: its values differ by .* in another call"):
        phasor.fuse(torch.export.export(Rotates(), given))  # its columns are alike in this call only


def test_a_traced_module_is_fused_and_stays_as_it_was(program):
    module, given = fx.symbolic_trace(Attends()), (torch.randn(1, 7, 16), POSITIONS)
    new, report = phasor.fuse(module, given)
    assert report.fused == 2 and torch.equal(new(*given), module(*given))
    assert "phasor" in new.code and "phasor" not in module.code
    with pytest.raises(ValueError, match="its 2 rotations are operators already"):
        phasor.fuse(new, given)


def test_a_norm_behind_a_rotation_projects_nothing():
    """Its weight has one axis; were it a projection, the rotation before it would turn nothing of the data."""

    class Norms(Rotates):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)

        def forward(self, x, cos, sin):
            return self.norm(super().forward(x, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)))

    module, given = fx.symbolic_trace(Norms()), (torch.randn(2, 3, 7, 8), *torch.randn(2, 7, 4))
    new, report = phasor.fuse(module, given)
    assert report.fused == 1 and torch.equal(new(*given), module(*given))


class Turning(Attends):
    """Queries turned by a function of its own, keys by `turned`; ``weight``: something that is trained."""

    def __init__(self, how, weight=None) -> None:
        super().__init__()
        self.how, self.weight = how, None if weight is None else nn.Parameter(weight)
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, positions):
        q, k, v = self.heads(x)
        angles = torch.cat([(positions[..., None].float() * self.inv_freq)[:, None]] * 2, -1)
        q = self.how(self, q, angles, positions[:, None, :, None])
        return nn.functional.scaled_dot_product_attention(q, turned(k, angles.cos(), angles.sin()), v)


def halves_swapped(x):
    half = x.chunk(2, -1)
    return torch.cat((-half[1], half[0]), -1)


def masked(self, q, angles, at):
    open = at >= 0
    rest = torch.where(open, halves_swapped(q) * angles.sin(), torch.zeros_like(q))
    return torch.where(open, q * angles.cos(), q) + rest


def with_trained_factor(self, q, angles, at):
    return q * angles.cos() * self.weight + halves_swapped(q) * angles.sin() * self.weight


def by_trained_frequencies(self, q, angles, at):
    angles = torch.cat([at.float() * self.weight] * 2, -1)
    return turned(q, angles.cos(), angles.sin())


def with_a_counter_between(self, q, angles, at):
    self.seen.add_(1)
    on = (self.seen < 9).float()
    return q * angles.cos() * on + halves_swapped(q) * angles.sin() * on


def written_over(self, q, angles, at, write):
    q = q + 0
    first, rest = q * angles.cos(), halves_swapped(q)
    write(q)
    return first + rest * angles.sin()


def assigned(q):
    q[..., 0] = 0


WRITES = {
    "zero_": lambda q: q.zero_(),
    "iadd": lambda q: operator.iadd(q, 1),
    "inplace": lambda q: nn.functional.relu(q, inplace=True),
    "setitem": assigned,
}


@pytest.mark.parametrize(
    "how, weight, says",
    [
        (masked, None, "beside cos and sin it follows from 'positions'"),
        (with_trained_factor, torch.ones(()), "beside cos and sin it follows from 'p_weight'"),
        (by_trained_frequencies, torch.tensor([1.0, 0.3, 0.1, 0.03]), "its cos and sin are trained, and the operator"),
        (with_a_counter_between, None, "beside cos and sin it follows from 'b_seen'"),
    ],
)
def test_what_is_open_or_one_in_the_calls_that_are_seen_is_left(how, weight, says):
    """A mask, a factor and a counter that change nothing yet; frequencies that would lose their gradient."""
    module = Turning(how, weight)
    new, report = phasor.fuse(torch.export.export(module, (torch.randn(1, 7, 16), POSITIONS)))
    assert report.fused == 1 and next(f.reason for f in report.findings if f.verdict != "right").startswith(says)
    given = torch.randn(1, 7, 16), torch.arange(7)[None] * 300 - 9
    module.seen.zero_()
    assert torch.equal(new.module()(*given), module(*given))


@pytest.mark.parametrize("how", WRITES)
def test_what_is_written_into_is_left(how):
    """By a method, an operator of Python, a flag or an index, as torch.compile captures it."""
    graphs, model = [], Turning(partial(written_over, write=WRITES[how])).eval()

    def keep(module, inputs):
        graphs.append((module, inputs))
        return module

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=keep)(torch.randn(1, 7, 16), POSITIONS)
    findings, sites, before, after = fused(*graphs[0])
    assert len(sites) == 1 and torch.equal(before[0], after[0])
    assert [f.reason for f in findings if f.verdict != "right"] == ["something writes into the memory of its values"]


def test_what_out_names_is_written_into():
    module = fx.symbolic_trace(Turning(partial(written_over, write=lambda q: torch.mul(q, 2, out=q))))
    given = torch.randn(1, 7, 16), POSITIONS
    new, report = phasor.fuse(module, given)
    assert report.fused == 1 and "something writes into the memory of its values" in str(report)
    with torch.no_grad():
        assert torch.equal(new(*given), module(*given))


def test_what_a_program_writes_into_is_not_changed_by_the_proof():
    """A counter behind the positions, and a cache that is an input."""

    class Counts(Attends):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

        def forward(self, x, positions, keys):
            q, k, v = self.heads(x)
            angles = torch.cat([((positions + self.seen)[..., None].float() * self.inv_freq)[:, None]] * 2, -1)
            self.seen.add_(x.shape[1])
            keys.add_(turned(k, angles.cos(), angles.sin()))
            return nn.functional.scaled_dot_product_attention(turned(q, angles.cos(), angles.sin()), keys.clone(), v)

    given = torch.randn(1, 7, 16), POSITIONS, torch.zeros(1, 2, 7, 8)
    program = torch.export.export(Counts(), given)
    _, report = phasor.fuse(program, given)
    assert report.fused == 2 and report.outputs == "all outputs equal to the bit"
    assert not given[2].any() and not program.state_dict["seen"].any()


@pytest.mark.parametrize("first", [(1, 7), (1, 1), (2, 1)])
def test_a_module_is_the_same_for_other_batches_and_lengths(first):
    """An axis of 1 is no axis to leave out: the next call may have two sequences at positions of their own."""
    module = fx.symbolic_trace(Attends())
    new, _ = phasor.fuse(module, (torch.randn(*first, 16), torch.arange(1, 8)[None, : first[1]].expand(first)))
    for sizes in ((2, 7), (2, 2), (1, 3), (7, 1)):
        given = torch.randn(*sizes, 16), torch.randint(0, 1000, sizes)
        assert torch.equal(new(*given), module(*given))


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)], ids=str)
def test_what_follows_may_view_the_memory_as_before(axes):
    """Heads whose axes lie in memory in another order than they are named in, viewed behind the rotation."""

    class Views(Rotates):
        def forward(self, x, cos, sin):
            angles = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
            y = super().forward(x.permute(back), *angles)
            return y.permute(axes).view(1, -1, 8)

    back = [axes.index(i) for i in range(4)]
    shape = [(2, 3, 7, 8)[axis] for axis in axes]
    given = torch.randn(shape), torch.randn(7, 4), torch.randn(7, 4)
    new, report = phasor.fuse(torch.export.export(Views(), given))
    assert report.fused == 1 and torch.equal(new.module()(*given), Views()(*given))


def test_random_numbers_are_the_same_before_and_after():
    class Drops(Attends):
        def heads(self, x):
            return [nn.functional.dropout(t, 0.5, True) for t in super().heads(x)]

    program = torch.export.export(Drops(), (torch.randn(1, 7, 16), POSITIONS))
    assert phasor.fuse(program)[1].outputs == "all outputs equal to the bit"


def test_an_operator_without_gradients_for_its_tables_says_so():
    x, cos, sin = torch.randn(1, 2, 7, 8), torch.randn(7, 4, requires_grad=True), torch.randn(7, 4)
    with pytest.raises(ValueError, match=r"cos and sin must need no gradient in torch.ops.phasor.rotate"):
        ROTATE(x, cos, sin, FORMS["llama"], "bhsd", False)


@pytest.mark.parametrize("first, step, part", [(0, 1, None), (1, 2, None), (3, 1, None), (0, 1, 0), (2, 2, 1)])
def test_columns_of_a_wider_table_are_one_for_each_pair(first, step, part):
    value = torch.arange(24.0).view(2, 12)
    whole = value if part is None else torch.complex(value, -value)
    found = Table(fx.Graph().placeholder("x"), first, step, part).of(whole, 4)
    columns = torch.stack([value[:, first + step * i] for i in range(4)], -1)
    assert torch.equal(found, -columns if part else columns)


def test_another_call_has_whole_numbers_backwards_and_other_real_ones():
    numbers, generator = torch.arange(6).view(2, 3), torch.Generator().manual_seed(0)
    assert other(numbers, generator).tolist() == [[2, 1, 0], [5, 4, 3]]
    share = other(torch.ones(100), generator)
    assert 0.5 <= share.min() < 0.6 and 0.9 < share.max() <= 1


def test_bad_input_is_named(program):
    with pytest.raises(ValueError, match="program must be an ExportedProgram or a GraphModule, got Attends"):
        phasor.fuse(Attends())
    with pytest.raises(ValueError, match="inputs must be given"):
        phasor.fuse(fx.symbolic_trace(Attends()))
    with pytest.raises(ValueError, match=r"'positions' is missing"):
        phasor.fuse(fx.symbolic_trace(Attends()), torch.randn(1, 7, 16))
    with pytest.raises(ValueError, match=r"inputs must have the sizes of the export, \[1, 7, 16\] for 'x'"):
        phasor.fuse(program, (torch.randn(1, 9, 16), torch.arange(9)[None]))
    with pytest.raises(ValueError, match="program has no rotation to fuse: nothing in it turns"):
        phasor.fuse(torch.export.export(nn.Linear(4, 4), (torch.randn(1, 3, 4),)))


@pytest.mark.slow
@pytest.mark.skipif(which("gcc") is None, reason="inductor needs a C++ compiler on a CPU")
def test_compiled_it_has_the_bits_of_the_model_that_is_not(monkeypatch):
    monkeypatch.setattr(compiled, "FEW", 1)

    class Turns(Attends):
        def forward(self, x, positions):
            (q, k, _), angles = self.heads(x), positions[..., None].float() * self.inv_freq
            cos, sin = (torch.cat([t.to(x.dtype)[:, None]] * 2, -1) for t in (angles.round(), angles.round() + 1))
            q, k = (turned(t, cos, sin) for t in (q, k))
            return q, k, q @ k.transpose(-1, -2)

    model = Turns().bfloat16()
    given = torch.randn(1, 7, 16).bfloat16(), POSITIONS
    with torch.no_grad():
        own = torch.compile(model, backend=phasor.inductor, options={"fx_graph_cache": False})(*given)
        assert all(torch.equal(a, b) for a, b in zip(own[:2], model(*given)[:2], strict=True))
    loss = torch.compile(model, backend=phasor.inductor)(*given)[2].float().square().sum()
    loss.backward()
    compiled_grad, model.qkv.weight.grad = model.qkv.weight.grad, None
    model(*given)[2].float().square().sum().backward()
    assert torch.allclose(compiled_grad, model.qkv.weight.grad, rtol=0.05, atol=float(compiled_grad.abs().max()) / 50)
