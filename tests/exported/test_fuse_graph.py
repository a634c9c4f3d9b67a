"""`phasor.fuse`: rotations of PyTorch graphs become the operator, of any form; what is not proved stays."""

from shutil import which

import pytest
import torch
from torch import fx, nn

import phasor
from eye.zoo import ZOO
from phasor.tools.fuse import compiled
from phasor.tools.fuse.fuse import found
from phasor.tools.fuse.graph import Graph
from phasor.tools.fuse.rewrite import rewrite

ROTATE = torch.ops.phasor.rotate.default
POSITIONS = torch.arange(7)[None] * 5
# head_dim, rotary_dim, trailing, interleaved, blocks, permuted, per_head: what the operator is told of the zoo's models
FORMS = {
    "llama": [8, 8, 0, 0, 1, 0, 0],
    "tables in bfloat16": [8, 8, 0, 0, 1, 0, 0],
    "last channels": [8, 4, 1, 0, 1, 0, 0],
    "gptj": [8, 4, 0, 1, 1, 0, 0],
    "complex halves": [8, 8, 0, 0, 1, 0, 0],
    "complex buffer": [8, 8, 0, 1, 1, 0, 0],
    "rows and columns in blocks": [4, 4, 0, 0, 1, 0, 0],
    "nanochat": [8, 8, 0, 0, 1, 0, 0],
    "packed documents": [8, 8, 0, 0, 1, 0, 0],
    "turned twice": [8, 8, 0, 0, 1, 0, 0],
    "two by two by hand": [8, 8, 0, 1, 1, 0, 0],
    "bfloat16": [8, 8, 0, 0, 1, 0, 0],
}
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


@pytest.mark.parametrize("name", FORMS)
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


@pytest.mark.parametrize("name", LEFT)
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
    assert torch.equal(new.module()(*given), program.module()(*given))
    assert not program.graph.find_nodes(op="call_function", target=ROTATE)


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


def test_what_is_written_into_is_left():
    class Writes(Attends):
        def forward(self, x, positions):
            q, k, v = self.heads(x)
            angles = torch.cat([(positions[..., None].float() * self.inv_freq)[:, None]] * 2, -1)
            q = q + 0
            y = turned(q, angles.cos(), angles.sin())
            q.zero_()
            return nn.functional.scaled_dot_product_attention(y, k, v)

    with pytest.raises(ValueError, match="something writes into the memory of its values"):
        phasor.fuse(fx.symbolic_trace(Writes()), (torch.randn(1, 7, 16), POSITIONS))


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
