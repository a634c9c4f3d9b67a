"""`phasor fuse`: rotations of any form become one operator, proved; what is not proved stays, and files stay whole."""

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import torch  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from torch import nn  # noqa: E402

import phasor  # noqa: E402
from phasor.tools.onnx import check, fuse  # noqa: E402
from phasor.tools.onnx.read import read_file  # noqa: E402
from phasor.tools.onnx.rotations import Rotations  # noqa: E402

from .graphs import (  # noqa: E402
    CONFIGS,
    FACTOR,
    HEAD,
    HEADS,
    ROWS,
    WIDTHS,
    attending,
    counted,
    frequencies,
    in_pairs,
    info,
    joined,
    nodes,
    operators,
    plain,
    tables,
)  # fmt: skip

n = helper.make_node


@pytest.fixture
def fused(tmp_path):
    """The report of a graph, and what it became."""

    def of(made, **options):
        onnx.save(made, tmp_path / "model.onnx")
        report = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", **{"length": ROWS, **options})
        return report, onnx.load(tmp_path / "fused.onnx")

    return of


def of_opset(made, opset):
    made.opset_import[0].version = opset
    return made


def ops(made):
    return [node.op_type for node in made.graph.node]


def reverse(name):
    return nodes(name, wrong="direction")


def turned(name, x, at, sign=1):
    """``x [batch, heads, tokens, 16]`` at positions ``[batch, tokens]``, by the definition, in float64."""
    width, factor = WIDTHS[name], FACTOR if name == "yarn" else 1.0
    angles = sign * at[:, None, :, None] * frequencies(name).astype(np.float32).astype(np.float64)
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)
    y = x.astype(np.float64)
    first = slice(0, width, 2) if name == "interleaved" else slice(0, width // 2)
    second = slice(1, width, 2) if name == "interleaved" else slice(width // 2, width)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = cos * a - sin * b, sin * a + cos * b
    return y


FORMS = {
    **{name: (name, lambda name=name: nodes(name), 1)
       for name in CONFIGS},
    "reverse": ("halves", lambda: reverse("halves"), -1),
}  # fmt: skip
AT = np.array([[0, 7, 300, ROWS - 1], [ROWS - 1, 0, 0, 1]])


def heads_like(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def ran(after, *of_heads, **given):
    """All outputs, q and k being alike: by onnx itself, or by onnxruntime where its own operators are in it."""
    given |= {name: x for name, x in zip(("q", "k"), of_heads * 2, strict=False)}
    if "com.microsoft" not in {node.domain for node in after.graph.node} and after.opset_import[0].version > 22:
        return ReferenceEvaluator(after).run(None, given)
    return pytest.importorskip("onnxruntime").InferenceSession(after.SerializeToString()).run(None, given)


def close(y, right, atol=1e-6):
    np.testing.assert_allclose(y, right, atol=atol, rtol=0)


@pytest.mark.parametrize("opset", [18, 23, *(pytest.param(n, marks=pytest.mark.slow) for n in (13, 22))])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_becomes_one_operator_with_exact_tables(fused, tmp_path, form, opset):
    """Near position 511 float32 angles are off by 1e-5; the operator, run by another implementation, is not."""
    name, made, sign = FORMS[form]
    report, after = fused(of_opset(made(), opset))
    assert report.fused == 2 and {node.domain for node in after.graph.node} == {"", *["com.microsoft"] * (opset < 23)}
    assert sum(t.name.startswith(("rotary_cos", "rotary_sin")) for t in after.graph.initializer) == 2  # for both
    if opset == 23:
        assert ops(after) == ["Add", "RotaryEmbedding", "RotaryEmbedding"]
        assert sign < 0 or check(tmp_path / "fused.onnx", CONFIGS[name]).verdict == "right"
    x = heads_like(2, HEADS, 4, HEAD)
    for y in ran(after, x, positions=AT):
        close(y, turned(name, x, AT, sign))
    if find_spec("openvino"):
        core, exact = import_module("openvino").Core(), {"INFERENCE_PRECISION_HINT": "f32"}
        run = core.compile_model(tmp_path / "fused.onnx", "CPU", exact)
        close(run({"q": x, "k": x, "positions": AT})[0], turned(name, x, AT, sign))


def resized(made, shape, axes):
    """The same nodes on heads of another ``shape``, for which tables get ``axes`` of length 1."""
    for value in (*made.graph.input[:2], *made.graph.output):
        value.CopyFrom(info(value.name, TensorProto.FLOAT, *shape))
    made.graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), "heads_at"))
    for node in made.graph.node:
        if node.output[0] in ("Cos", "Sin"):
            node.input[1] = "heads_at"
    return made


FLAT = ["Reshape", "RotaryEmbedding", "Reshape"]


@pytest.mark.parametrize(
    "name, shape, axes, made",
    [
        ("interleaved", ("batch", "seq", HEADS, HEAD), [2], FLAT),
        ("partial", ("batch", "seq", HEADS, HEAD), [2], FLAT),
        ("partial", ("batch", "seq", 3, HEADS, HEAD), [2, 3], FLAT),
        ("partial", ("batch", HEADS, 3, "seq", HEAD), [1, 2], FLAT),
        ("partial", ("batch", "seq", HEAD), [], ["RotaryEmbedding"]),
    ],
)
def test_heads_may_lie_anywhere(fused, name, shape, axes, made):
    _, after = fused(resized(nodes(name), shape, axes))
    assert ops(after) == ["Add", *made * 2]
    x, tokens = heads_like(*({"batch": 2, "seq": 4}.get(size, size) for size in shape)), shape.index("seq")
    flat = np.moveaxis(x, tokens, -2).reshape(2, -1, 4, HEAD)
    y = np.moveaxis(ran(after, x, positions=AT)[0], tokens, -2).reshape(flat.shape)
    close(y, turned(name, flat, AT))


def test_pairs_that_are_read_side_by_side_and_written_as_halves(fused):
    """As DeepSeek-V3 does: the operator and one Gather."""
    made = nodes("interleaved")
    keep = [node for node in made.graph.node if node.output[0][:2] not in ("q_", "k_")]
    cos_sin = [n("Slice", [t, "zero", "last", "axis", "two"], [f"{t}_few"]) for t in ("Cos", "Sin")]
    for x in ("q", "k"):
        cos_sin += [n("Slice", [x, a, "last", "axis", "two"], [f"{x}_{b}"]) for a, b in (("zero", "a"), ("one", "b"))]
        cos_sin += [n("Mul", [f"{x}_{m}", f"{t}_few"], [f"{x}_{m}{t}"]) for m in "ab" for t in ("Cos", "Sin")]
        cos_sin += [n("Sub", [f"{x}_aCos", f"{x}_bSin"], [f"{x}_1"]), n("Add", [f"{x}_aSin", f"{x}_bCos"], [f"{x}_2"])]
        cos_sin += [n("Concat", [f"{x}_1", f"{x}_2"], [f"{x}_rotated"], axis=-1)]
    del made.graph.node[:]
    made.graph.node.extend([*keep, *cos_sin])
    made.graph.initializer.append(numpy_helper.from_array(np.array([HEAD]), "last"))
    _, after = fused(made)
    assert ops(after) == ["Add", "RotaryEmbedding", "Gather", "RotaryEmbedding", "Gather"]
    x = heads_like(2, HEADS, 4, HEAD)
    right = turned("interleaved", x, AT)
    close(ran(after, x, positions=AT)[0], np.concatenate((right[..., 0::2], right[..., 1::2]), -1))


def test_neighbours_that_are_the_last_ones_have_the_others_in_their_tables(fused):
    """As those of a picture of which the first axis is 0."""
    last = np.where(np.arange(HEAD // 2) < 3, 0.0, frequencies("interleaved")).astype(np.float32)
    _, after = fused(plain("interleaved", last))
    assert ops(after) == ["Add", "RotaryEmbedding", "RotaryEmbedding"]
    x = heads_like(2, HEADS, 4, HEAD)
    y = ran(after, x, positions=AT)[0]
    both = x.astype(np.float64).view(np.complex128) * np.exp(1j * AT[:, None, :, None] * last.astype(np.float64))
    close(y, both.view(np.float64))
    assert np.array_equal(y[..., :6], x[..., :6])


def test_tables_that_stand_in_the_graph_are_kept_to_the_bit(fused):
    """Heads in pairs, as Meta's Llama cuts them, by tables of 512 rows: more are not made up."""
    report, after = fused(in_pairs(), length=4096)
    assert ops(after) == ["RotaryEmbedding"] * 2 and report.rows == ROWS
    assert {finding.difference.size for finding in report.findings} == {0.0}
    mine = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}
    cos, sin = (mine[name] for name in after.graph.node[0].input[1:3])
    assert np.array_equal(cos, tables("interleaved")[0]) and np.array_equal(sin, tables("interleaved")[1])


def test_weights_are_not_read_and_what_is_around_stays(fused):
    """An attention whose weights are no numbers."""
    made = attending(nodes())
    report, after = fused(made)
    assert report.fused == 2 and ops(after).count("RotaryEmbedding") == 2
    rest = [op for op in ops(made) if op in ("MatMul", "Reshape", "Transpose", "Softmax")]
    assert [op for op in ops(after) if op in rest] == rest


def test_what_leads_to_weights_alone_takes_no_memory(tmp_path):
    """A residual stream of two layers: of all that is not an attention only sizes are kept."""
    gated = [n("Sigmoid", ["x"], ["gate"]), n("Mul", ["x", "gate"], ["gated"]), n("MatMul", ["gated", "w"], ["inner"])]
    gated += [n("Add", ["x", "inner"], ["stream"])]
    made = joined(attending(nodes()), gated, w=np.full((32, 32), np.nan, np.float32))
    for node in made.graph.node[len(gated) :]:
        node.input[:] = ["stream" if name == "x" else name for name in node.input]
    onnx.save(made, tmp_path / "model.onnx")
    values = Rotations(read_file(tmp_path / "model.onnx")).seen.values
    assert {name for name, x in values.items() if x.is_meta} == {"gate", "gated", "inner", "stream"}
    assert fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", length=ROWS, run=False).fused == 2


def quantised(made, how):
    """Weights in 4 bits inside a product of onnxruntime's, or in 8 bits behind a DequantizeLinear."""
    for name in ("q", "k", "v"):
        at = next(i for i, node in enumerate(made.graph.node) if node.output[0] == f"{name}_flat")
        node, about = made.graph.node[at], {"K": 32, "N": 32, "bits": 4, "block_size": 32}
        kept = next(t for t in made.graph.initializer if t.name == f"weight_{name}")
        scale = numpy_helper.from_array(np.ones(32, np.float32), f"scale_{name}")
        if how == "MatMulNBits":
            kept.CopyFrom(numpy_helper.from_array(np.full((32, 1, 16), 7, np.uint8), kept.name))
            more = {"domain": "com.microsoft", **about}
            node.CopyFrom(n(how, ["x", kept.name, scale.name], list(node.output), f"four_{name}", **more))
        else:
            kept.CopyFrom(numpy_helper.from_array(np.ones((32, 32), np.int8), kept.name))
            made.graph.node.insert(at, n(how, [kept.name, scale.name], [f"wide_{name}"], axis=1))
            node.input[1] = f"wide_{name}"
        made.graph.initializer.append(scale)
    return made


@pytest.mark.parametrize("how", ["MatMulNBits", "DequantizeLinear"])
def test_quantised_weights_stay(fused, how):
    made = quantised(attending(nodes()), how)
    report, after = fused(made)
    assert report.fused == 2 and report.outputs.startswith("all outputs equal")
    kept = [node.SerializeToString() for node in made.graph.node if node.op_type in (how, "MatMul")]
    assert kept == [node.SerializeToString() for node in after.graph.node if node.op_type in (how, "MatMul")]


def own_positions(forming, inputs=(), **constants):
    """Plain nodes of halves whose positions are formed by nodes: ``counted`` has operators."""
    made, form = counted(forming, list(inputs), constants), nodes()
    del made.graph.node[len(forming) :]
    made.graph.node.extend(form.graph.node)
    names = {t.name for t in made.graph.initializer}
    made.graph.initializer.extend(t for t in form.graph.initializer if t.name not in names)
    return made


def after_a_cache():
    """Positions that begin behind a cache, whose size is that of an input."""
    more = [
        n("Shape", ["past"], ["past_sizes"]), n("Gather", ["past_sizes", "two_at"], ["past_length"]),
        n("Shape", ["q"], ["sizes"]), n("Gather", ["sizes", "two_at"], ["seq_length"]),
        n("Add", ["past_length", "seq_length"], ["end"]), n("Range", ["past_length", "end", "step"], ["row"]),
        n("Unsqueeze", ["row", "zero"], ["positions"]),
    ]  # fmt: skip
    past = info("past", TensorProto.FLOAT, "batch", HEADS, "past_seq", HEAD)
    return own_positions(more, [past], two_at=2, step=1)


def test_positions_that_a_graph_counts_behind_its_cache(fused):
    report, after = fused(after_a_cache())
    assert report.fused == 2 and ops(after).count("Expand") == 1  # one row for all sequences, formed once
    x = np.ones((2, HEADS, 3, HEAD), np.float32)
    y = ran(after, x, past=np.ones((2, HEADS, 40, HEAD), np.float32))[0]
    close(y, turned("halves", x, np.array([[40, 41, 42]] * 2)))


def test_positions_that_have_an_axis_for_the_heads(fused):
    made = nodes()
    made.graph.input[2].CopyFrom(info("positions", TensorProto.INT64, "batch", 1, "seq"))
    for node in made.graph.node:
        if node.output[0] in ("Cos", "Sin"):
            node.op_type = "Identity"
            del node.input[1:]
    report, after = fused(made)
    x = heads_like(2, HEADS, 4, HEAD)
    assert report.fused == 2
    close(ran(after, x, positions=AT[:, None])[0], turned("halves", x, AT))


def moved_by(made, name):
    """Angles moved by a number, behind the positions as whole numbers."""
    first = next(i for i, node in enumerate(made.graph.node) if node.op_type == "Cast")
    made.graph.node[first].output[0] = "unmoved"
    made.graph.node.insert(first + 1, n("Cast", [name], ["moves"], to=TensorProto.FLOAT))
    made.graph.node.insert(first + 2, n("Add", ["unmoved", "moves"], ["real"]))
    return made


def by_axis():
    """Positions ``[2, batch, seq]``: one half of the pairs follows the first, the other the second."""
    made = nodes()
    made.graph.input[2].CopyFrom(info("positions", TensorProto.INT64, 2, "batch", "seq"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([4, 4, 4, 4]), "quarters"))
    at = next(i for i, node in enumerate(made.graph.node) if node.op_type == "Cos")
    made.graph.node[at - 1].output[0] = "each"
    parts = [n("Split", ["each", "quarters"], ["p0", "p1", "p2", "p3"], axis=-1)]
    parts += [n("Gather", [f"p{i}", which], [f"r{i}"]) for i, which in enumerate(("zero_at", "one_at") * 2)]
    for i, node in enumerate([*parts, n("Concat", ["r0", "r1", "r2", "r3"], ["angles"], axis=-1)]):
        made.graph.node.insert(at + i, node)
    made.graph.initializer.extend(
        numpy_helper.from_array(np.array(i), f"{w}_at") for i, w in enumerate(("zero", "one"))
    )
    return made


def test_several_axes_of_positions_that_are_fixed_are_one_table(fused):
    """A grid of 2 x 3 as constants: the first half of the pairs follows its rows, the second its columns."""
    grid = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]])
    made = attending(by_axis())
    del made.graph.input[1]
    made.graph.input[0].CopyFrom(info("x", TensorProto.FLOAT, 1, 6, 32))
    made.graph.output[0].CopyFrom(info("out", TensorProto.FLOAT, 1, HEADS, 6, HEAD))
    made.graph.initializer.append(numpy_helper.from_array(grid[:, None], "positions"))
    report, after = fused(made, length=None)
    assert report.rows == 6 and {finding.difference.size for finding in report.findings} == {0.0}
    turning = [node for node in after.graph.node if node.op_type == "RotaryEmbedding"]
    kept = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}
    cos, sin = (kept[name] for name in turning[0].input[1:3])
    angles = np.where(np.arange(HEAD // 2) < HEAD // 4, *grid[..., None]) * frequencies("halves")
    np.testing.assert_allclose((cos, sin), (np.cos(angles), np.sin(angles)), atol=1e-6, rtol=0)
    assert len(turning) == 2 and turning[1].input[1:3] == turning[0].input[1:3] and "Cos" not in ops(after)


class Picture(nn.Module):
    """Attention, neighbours turned by tables of positions that it counts."""

    def __init__(self, pairs) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.register_buffer("inv_freq", 100.0 ** (-torch.arange(pairs) / pairs))

    def turned(self, x):
        angles = (torch.arange(x.shape[-2])[:, None] * self.inv_freq).repeat_interleave(2, -1)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * angles.cos() + torch.stack((-b, a), -1).flatten(-2) * angles.sin()


def heads(x):
    return x.unflatten(-1, (2, 16)).transpose(1, 2)


class BesideText(Picture):
    """Tokens of text, which do not turn, are joined in front, as in PRX."""

    def forward(self, x, text):
        (q, k, v), more = (map(heads, self.qkv(t).chunk(3, -1)) for t in (x, text))
        q, k, v = (torch.cat(both, 2) for both in zip(more, (self.turned(q), self.turned(k), v), strict=True))
        return nn.functional.scaled_dot_product_attention(q, k, v)


class AcrossHeads(Picture):
    """Turned before they are cut into heads, each with angles of its own, as in LTX: one head of all channels."""

    def forward(self, x, text):
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(heads(self.turned(q)), heads(self.turned(k)), heads(v))


@pytest.mark.parametrize(
    "made, width, more",
    [
        pytest.param(BesideText, 8, {}, marks=pytest.mark.slow),
        (BesideText, 8, {"tokens": 40}),
        pytest.param(AcrossHeads, 16, {}, marks=pytest.mark.slow),
    ],
)
def test_tokens_that_are_joined_with_others_and_heads_in_the_channels(made, width, more, tmp_path):
    """And as many tokens as another call has, where their number is free."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, given = made(width).eval(), {"x": torch.randn(1, 12, 32), "text": torch.randn(1, 3, 32)}
    shapes = ({1: torch.export.Dim("tokens", max=1024)}, {}) if more else None
    path = phasor.onnx.export(
        model, tuple(given.values()), tmp_path / "a.onnx", opset_version=18, input_names=given, dynamic_shapes=shapes
    )
    assert fuse(path, tmp_path / "fused.onnx", length=64 if more else None).fused == 2
    given["x"] = torch.randn(1, more.get("tokens", 12), 32)
    session = onnxruntime.InferenceSession(tmp_path / "fused.onnx")
    y = session.run(None, {i.name: given[i.name].numpy() for i in session.get_inputs()})[0]
    close(y, model(**given).detach(), atol=1e-5)


def moved_by_an_input():
    made = moved_by(nodes(), "offset")
    made.graph.input.append(info("offset", TensorProto.INT64))
    return made


def rows_behind_a_cache():
    """Rows of tables, cut out from the length of the cache on."""
    made = nodes()
    cos, sin = (np.concatenate((t, t), -1) for t in tables("halves"))
    made.graph.input[2].CopyFrom(info("past", TensorProto.FLOAT, "batch", HEADS, "past_seq", HEAD))
    more = [n("Shape", ["past"], ["before"], start=2, end=3), n("Shape", ["q"], ["seq"], start=2, end=3)]
    more += [n("Add", ["before", "seq"], ["until"])]
    more += [n("Slice", [f"all_{t}", "before", "until", "zero"], [t]) for t in ("Cos", "Sin")]
    kept = [node for node in made.graph.node if node.output[0][:2] in ("q_", "k_")]
    del made.graph.node[:]
    made.graph.node.extend([*more, *kept])
    made.graph.initializer.extend(numpy_helper.from_array(t, f"all_{x}") for t, x in ((cos, "Cos"), (sin, "Sin")))
    return made


def by_size_of_call():
    """Other frequencies where a call has more than 128 tokens."""
    made = nodes()
    next(node for node in made.graph.node if node.output[0] == "angles").input[1] = "now"
    more = [n("Shape", ["q"], ["tokens"], start=2, end=3), n("Greater", ["tokens", "limit"], ["long"])]
    more += [n("Where", ["long", "others", "frequencies"], ["now"])]
    others = np.tile(frequencies("halves") / 4, 2).astype(np.float32)
    return joined(made, more, limit=np.array([128]), others=others)


def by_mask():
    """Positions counted from a mask: padding in front is at -1."""
    made = nodes()
    made.graph.input[2].name = "attention_mask"
    more = [n("CumSum", ["attention_mask", "second"], ["sums"]), n("Sub", ["sums", "one"], ["positions"])]
    return joined(made, more, second=1)


def of_float64():
    made = nodes()
    for value in (*made.graph.input[:2], *made.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    next(node for node in made.graph.node if node.op_type == "Cast").attribute[0].i = TensorProto.DOUBLE
    for tensor in made.graph.initializer:
        if tensor.name in ("frequencies", "factor"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    return made


def with_frequencies_as_an_input():
    made = nodes()
    made.graph.input.append(info("frequencies", TensorProto.FLOAT, HEAD))
    return made


def with_a_free_axis_more():
    return resized(nodes(), ("batch", "tiles", HEADS, "seq", HEAD), [1, 2])


def test_constants_that_an_old_file_lists_as_inputs_are_constants(fused):
    """Version 3 of the format had to; the tables that are new are none."""
    made = of_opset(nodes(), 13)
    made.ir_version = 3
    made.graph.input.extend(info(t.name, t.data_type, *t.dims) for t in made.graph.initializer)
    report, after = fused(made)
    assert (
        report.fused == 2 and report.outputs.startswith("all outputs equal") and after.graph.input == made.graph.input
    )
    x = heads_like(2, HEADS, 4, HEAD)
    close(ran(after, x, positions=AT)[0], turned("halves", x, AT))


def test_positions_of_32_bits_reach_the_end_of_tables(fused):
    made = in_pairs()
    made.graph.input[2].type.tensor_type.elem_type = TensorProto.INT32
    for value in (*made.graph.input, *made.graph.output):  # a name that does not say what it counts
        value.type.tensor_type.shape.dim[-1 if value.name == "positions" else 2].dim_param = "n"
    report, after = fused(made, length=4096)
    assert (report.fused, report.rows) == (2, ROWS)
    x = heads_like(2, HEADS, 4, HEAD)
    close(ran(after, x, positions=AT.astype(np.int32))[0], turned("interleaved", x, AT), atol=4e-6)


def test_two_lengths_that_a_graph_counts_are_two(fused):
    """q and k, of as many tokens as each has, turned by the first rows of one table."""
    made = nodes()
    keep = [node for node in made.graph.node if node.output[0][:2] in ("q_", "k_")]
    del made.graph.node[:], made.graph.input[2]
    for value in (made.graph.input[1], made.graph.output[1]):
        value.CopyFrom(info(value.name, TensorProto.FLOAT, "batch", HEADS, "seq_k", HEAD))
    for node in keep:
        node.input[:] = [f"{name}_{node.output[0][0]}" if name in ("Cos", "Sin") else name for name in node.input]
    made.graph.node.extend(keep)
    more = [n("Shape", [x], [f"{x}_seq"], start=2, end=3) for x in "qk"]
    more += [n("Slice", [f"all_{t}", "zero", f"{x}_seq", "zero"], [f"{t}_{x}"]) for t in ("Cos", "Sin") for x in "qk"]
    cos, sin = (np.concatenate((t, t), -1) for t in tables("halves"))
    _, after = fused(joined(made, more, all_Cos=cos, all_Sin=sin))
    q, k = np.ones((2, HEADS, 3, HEAD), np.float32), np.ones((2, HEADS, 5, HEAD), np.float32)
    for x, y in zip((q, k), ran(after, q, k), strict=True):
        close(y, turned("halves", x, np.array([range(x.shape[2])] * 2)))


@pytest.mark.parametrize("length", [1, 3])
def test_a_short_length_is_run_no_further(fused, length):
    pytest.importorskip("onnxruntime")
    report, _ = fused(nodes(), length=length)
    assert report.rows == length and report.outputs.startswith("all outputs equal")


def test_a_length_that_no_table_can_have(fused):
    with pytest.raises(ValueError, match=r"tables of 1,000,000,000 positions, .* \(--length\), at most 16,777,216"):
        fused(nodes(), length=10**9)


def test_layers_that_write_out_the_same_are_run_at_every_position_once(fused, monkeypatch):
    """q and k by tables that each forms for itself: what is computed alike from the same is the same."""
    room, every = sys.modules["phasor.tools.onnx.fuse"], []

    def noted(*args):
        every.append(args[-1])
        return proved_equal(*args)

    proved_equal = room.proved_equal
    monkeypatch.setattr(room, "proved_equal", noted)
    made = nodes()
    for node in [one for one in made.graph.node if one.output[0] in ("Cos_times", "Sin_times", "Cos", "Sin")]:
        again = n(node.op_type, [f"{x}_k" if x.endswith("_times") else x for x in node.input], [f"{node.output[0]}_k"])
        made.graph.node.insert(list(made.graph.node).index(node) + 1, again)
    for node in made.graph.node:
        if node.output[0] in ("k_c", "k_s"):
            node.input[1] += "_k"
    report, _ = fused(made, run=False)
    assert report.fused == 2 and every == [True, False]


def test_a_rotation_that_is_not_proved_stays(fused, monkeypatch):
    """A table that is wrong at one far position."""
    room = sys.modules["phasor.tools.onnx.fuse"]

    def wrong(*args):
        cos, sin = made_right(*args)
        cos[400] += 1e-3
        return cos, sin

    made_right = room.tables
    monkeypatch.setattr(room, "tables", wrong)
    with pytest.raises(ValueError, match="no rotation to fuse: not proved: its values differ by"):
        fused(nodes())


def with_factor(made, x, factor):
    """What comes out of ``x`` is multiplied, the channels that pass, too."""
    made.graph.initializer.append(numpy_helper.from_array(np.float32(factor), "times"))
    last = next(node for node in made.graph.node if f"{x}_rotated" in node.output)
    last.output[0] = f"{x}_short"
    made.graph.node.append(n("Mul", [f"{x}_short", "times"], [f"{x}_rotated"]))
    return made


def test_a_factor_behind_the_rotation_stays_behind_it(fused):
    """The softmax's, on channels that pass: no table can say it."""
    _, after = fused(with_factor(nodes("partial"), "q", 0.5))
    assert ops(after).count("RotaryEmbedding") == 2 and ops(after)[-1] == "Mul"


def test_what_cuts_off_large_values_inside_a_rotation_is_kept(fused):
    """It is linear for all heads that are seen, and these have numbers of some 1."""
    made, bounds = nodes(), {"low": np.float32(-100), "high": np.float32(100)}
    last = next(node for node in made.graph.node if "q_rotated" in node.output)
    clipped = n("Clip", [last.input[0], *bounds], ["clipped"])
    last.input[0] = "clipped"
    made.graph.node.insert(list(made.graph.node).index(last), clipped)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in bounds.items())
    report, after = fused(made)
    assert (
        report.fused == 1
        and "Clip" in ops(after)
        and sorted(f.verdict for f in report.findings) == ["not shown", "right"]
    )


def test_what_no_operator_says_is_left_and_named(fused):
    """q turns by its own frequencies in each head; k is fused."""
    made = nodes()
    each = np.stack([np.ones(HEAD), np.full(HEAD, 0.5)]).astype(np.float32)[None, :, None]
    made.graph.initializer.append(numpy_helper.from_array(each, "each"))
    more = [
        n("Mul", ["angles_4", "each"], ["angles_q"]),
        n("Cos", ["angles_q"], ["Cos_q"]), n("Sin", ["angles_q"], ["Sin_q"]),
    ]  # fmt: skip
    at = next(i for i, node in enumerate(made.graph.node) if node.output[0] == "angles")
    for i, node in enumerate([n("Unsqueeze", ["angles", "one"], ["angles_4"]), *more]):
        made.graph.node.insert(at + 1 + i, node)
    for node in made.graph.node:
        for i, name in enumerate(node.input):
            if name in ("Cos", "Sin") and node.output[0].startswith("q"):
                node.input[i] = f"{name}_q"
    report, after = fused(made)
    assert report.fused == 1 and ops(after).count("Neg") == 1
    assert "1 of 2 rotations fused" in str(report) and "left: " in str(report)
    assert str(report).endswith("cos and sin are still formed, by Cos_q, Sin_q")
    assert sorted(f.verdict for f in report.findings) == ["not shown", "right"]


@pytest.mark.parametrize("angles, far", [(TensorProto.FLOAT, 20_000), (TensorProto.FLOAT16, 3_000)])
@pytest.mark.parametrize("half", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_has_exact_angles_rounded_once(fused, half, angles, far):
    """Heads and tables in half precision; angles are formed in float32, or in float16, which has no position 2049."""
    made = nodes()
    for value in (*made.graph.input[:2], *made.graph.output):
        value.type.tensor_type.elem_type = half
    more = []
    for node in made.graph.node:
        last = node.output[0]
        if last in ("Cos", "Sin", "real"):
            node.output[0] = f"{last}_wide"
            more += [node, n("Cast", [f"{last}_wide"], [last], to=angles if last == "real" else half)]
        elif last == "angles":
            kept = next(t for t in made.graph.initializer if t.name == "frequencies")
            kind = np.float16 if angles == TensorProto.FLOAT16 else np.float32
            kept.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kept).astype(kind), "frequencies"))
            more.append(node)
        elif last.endswith("_times"):
            more += [n("CastLike", ["factor", node.input[0]], [f"{last}_by"]), node]
            node.input[1] = f"{last}_by"
        else:
            more.append(node)
    del made.graph.node[:]
    made.graph.node.extend(more)
    report, after = fused(made, length=far + 1, run=False)
    cos = next(numpy_helper.to_array(t) for t in after.graph.initializer if t.name == after.graph.node[1].input[1])
    right = np.cos(far * frequencies("halves").astype(kind).astype(np.float64))
    assert report.fused == 2 and report.rows == far + 1
    assert np.abs(cos[far].astype(np.float64) - right).max() <= 2.0 ** (-12 if half == TensorProto.FLOAT16 else -9)


def test_heads_that_are_widened_first_are_rotated_in_float32(fused):
    made = nodes("interleaved")
    for value in (*made.graph.input[:2], *made.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_wide" if name in ("q", "k", "q_rotated", "k_rotated") else name for name in names]
    for x in ("q", "k"):
        made.graph.node.insert(0, n("Cast", [x], [f"{x}_wide"], to=TensorProto.FLOAT))
        made.graph.node.append(n("Cast", [f"{x}_rotated_wide"], [f"{x}_rotated"], to=TensorProto.FLOAT16))
    _, after = fused(made)
    assert ops(after) == ["Cast", "Cast", "Add", "RotaryEmbedding", "RotaryEmbedding", "Cast", "Cast"]
    x = np.ones((2, HEADS, 4, HEAD), np.float16)
    assert np.array_equal(ran(after, x, positions=AT)[0], turned("interleaved", x, AT).astype(np.float16))


def test_a_loop_beside_the_rotations_stays(fused):
    loop = next(node for node in in_a_loop().graph.node if node.op_type == "Loop")
    loop.input[2] = "at_real"
    made = joined(nodes(), [n("Cast", ["positions"], ["at_real"], to=TensorProto.FLOAT), loop], times=1, go=True)
    made.graph.output.append(info("looped", TensorProto.FLOAT, "batch", "seq"))
    report, after = fused(made)
    assert report.fused == 2 and loop in list(after.graph.node)
    x = heads_like(2, HEADS, 4, HEAD)
    y, _, looped = ran(after, x, positions=AT)
    close(y, turned("halves", x, AT)), close(looped, AT)


def test_functions_are_written_out(fused):
    made = nodes()
    body = [node for node in made.graph.node if node.output[0].startswith("k")]
    reads = list(dict.fromkeys(name for node in body for name in node.input if not name.startswith("k_")))
    function = helper.make_function("own", "Turn", reads, ["k_rotated"], body, [helper.make_opsetid("", 23)])
    for node in body:
        made.graph.node.remove(node)
    made.graph.node.append(n("Turn", reads, ["k_rotated"], domain="own"))
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    report, after = fused(made)
    assert report.fused == 2 and ops(after).count("RotaryEmbedding") == 2 and not after.functions
    x = heads_like(2, HEADS, 4, HEAD)
    for y in ran(after, x, positions=AT):
        close(y, turned("halves", x, AT))


def test_what_cannot_be_run_is_said_and_hides_nothing_behind_the_next_projection(fused):
    """An operator of somebody's own between what comes in and the projections of q, k and v."""
    made = joined(attending(nodes()), [n("Own", ["x"], ["own"], "first", domain="somebody")])
    for node in made.graph.node[1:]:
        if node.op_type == "MatMul" and node.input[0] == "x":
            node.input[0] = "own"
            made.graph.value_info.append(info(node.output[0], TensorProto.FLOAT, "batch", "seq", HEADS * HEAD))
    report, _ = fused(made)
    assert report.fused == 2 and "\nnot run: Own 'first': no operator of somebody that is known here" in str(report)


def test_branches_are_entered(fused):
    """Both branches of an If rotate: one forwards, one backwards."""
    made, other = nodes(), reverse("halves")
    branches = {}
    for name, part in (("then", made), ("else", other)):
        branches[f"{name}_branch"] = helper.make_graph(list(part.graph.node), name, [], list(part.graph.output))
    chosen = n("If", ["which"], ["q_rotated", "k_rotated"], "chosen", **branches)
    del made.graph.node[:]
    made.graph.node.append(chosen)
    made.graph.input.append(info("which", TensorProto.BOOL, 1))
    report, after = fused(made)
    assert report.fused == 4 and ops(after) == ["If"] and report.nodes == (49, 7)
    x = heads_like(2, HEADS, 4, HEAD)
    for which, sign in ((True, 1), (False, -1)):
        close(ran(after, x, positions=AT, which=np.array([which]))[0], turned("halves", x, AT, sign))


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
MORE = {"NanoChat": {}, "GPTNeoX": {}, "Qwen3": {"head_dim": 16}, "Qwen2": {"rope_parameters": YARN}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Llama", "Glm", "Cohere", "Gemma3Text", "DeepseekV3", *MORE])
def test_transformers_models(tmp_path, monkeypatch, name):
    """Every rotation of what torch's exporter writes is fused, no output changes, and each is the config's."""
    pytest.importorskip("onnxscript"), pytest.importorskip("transformers"), pytest.importorskip("onnxruntime")
    from .test_check_exports import MODELS, of_transformers

    monkeypatch.setitem(MODELS, name, MORE.get(name, MODELS.get(name)))
    config, path = of_transformers(name, tmp_path)
    report = fuse(path, tmp_path / "fused.onnx", length=config.max_position_embeddings)
    assert report.fused == 2 * config.num_hidden_layers and report.outputs.startswith("all outputs equal")
    checked = check(tmp_path / "fused.onnx", config)
    assert checked.verdict != "wrong" and all(site.verdict == "right" for site in checked.findings)


# Files


def test_names_sizes_and_metadata_stay(fused):
    made = nodes()
    made.metadata_props.add(key="who", value="me")
    made.graph.doc_string, made.producer_name = "a layer", "somebody"
    _, after = fused(made)
    for what in ("metadata_props", "producer_name", "ir_version", "opset_import"):
        assert getattr(after, what) == getattr(made, what)
    for what in ("input", "output", "doc_string", "name"):
        assert getattr(after.graph, what) == getattr(made.graph, what)


@pytest.fixture
def apart(tmp_path):
    """A model whose weights stand beside it, in a file."""
    folder = tmp_path / "a"
    folder.mkdir()
    made = attending(nodes())
    onnx.save(made, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=1024)
    return folder / "model.onnx"


@pytest.mark.parametrize("options, same", [([], False), (["--link"], True)])
def test_weights_beside_the_file_are_linked_or_copied(phasor, apart, tmp_path, options, same):
    beside, out = apart.with_name("model.data"), tmp_path / "b" / "fused.onnx"
    out.parent.mkdir()
    before = beside.read_bytes()
    code, said, err = phasor("fuse", apart, "-o", out, "--length", ROWS, *options)
    assert code == 0 and said.startswith("model.onnx: 2 of 2 rotations fused"), err
    there = out.with_name("model.data")
    assert there.read_bytes() == beside.read_bytes() == before and os.path.samefile(there, beside) is same
    assert sorted(path.name for path in out.parent.iterdir()) == ["fused.onnx", "model.data"]


def test_weights_in_the_same_folder_stay_where_they_are(phasor, apart):
    assert phasor("fuse", apart, "-o", apart.with_name("fused.onnx"), "--length", ROWS)[0] == 0
    assert sorted(path.name for path in apart.parent.iterdir()) == ["fused.onnx", "model.data", "model.onnx"]
    assert phasor("fuse", apart, "-o", apart, "--length", ROWS)[0] == 0  # in its own place
    assert ops(onnx.load(apart)).count("RotaryEmbedding") == 2


def test_other_weights_are_not_overwritten(phasor, apart, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "model.data").write_bytes(b"another's")
    code, _, err = phasor("fuse", apart, "-o", tmp_path / "b" / "fused.onnx", "--length", ROWS)
    assert code == 2 and "name another folder" in err and os.listdir(tmp_path / "b") == ["model.data"]


def test_of_a_model_that_is_not_fused_no_copy_is_left(phasor, apart, tmp_path):
    (tmp_path / "b").mkdir()
    code, _, err = phasor("fuse", apart, "-o", tmp_path / "b" / "fused.onnx")
    assert code == 2 and "declares no length" in err and os.listdir(tmp_path / "b") == []


def test_the_length_of_a_config_beside_it(phasor, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(nodes(), path)
    code, _, err = phasor("fuse", path, "-o", tmp_path / "fused.onnx")
    assert code == 2 and "declares no length" in err and len(err.splitlines()) == 1
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["halves"]))
    code, said, _ = phasor("fuse", path, "-o", tmp_path / "fused.onnx", "--json")
    found = json.loads(said)
    assert code == 0 and (found["rows"], found["fused"], found["nodes"]) == (ROWS, 2, [24, 3])


def nothing_turns():
    made = nodes()
    for node in made.graph.node:
        node.op_type = "Cos" if node.op_type == "Sin" else node.op_type
        if node.op_type in ("Mul", "Add") and node.output[0] in ("q_c", "q_s", "k_c", "k_s"):
            node.input[1] = "factor"
    return made


def from_an_input():
    """cos and sin come in beside q and k, as real numbers."""
    made = operators("halves", *tables("halves"))
    kept = [node for node in nodes().graph.node if node.output[0][:2] in ("q_", "k_")]
    del made.graph.node[:], made.graph.initializer[:], made.graph.input[2:]
    made.graph.input.extend(info(name, TensorProto.FLOAT, "batch", 1, "seq", HEAD) for name in ("Cos", "Sin"))
    made.graph.node.extend(kept)
    made.graph.initializer.extend(nodes().graph.initializer)
    return made


def in_a_loop():
    body = helper.make_graph(
        [n("Identity", [x], [f"{x}_out"]) for x in ("going", "inner")], "body",
        [info("step", TensorProto.INT64), info("going", TensorProto.BOOL), info("inner", TensorProto.FLOAT, None)],
        [info("going_out", TensorProto.BOOL), info("inner_out", TensorProto.FLOAT, None)],
    )  # fmt: skip
    made = nodes()
    loop = n("Loop", ["times", "go", "real"], ["looped"], "loop", body=body)
    made.graph.initializer.extend([numpy_helper.from_array(np.array(1), "times")])
    made.graph.initializer.extend([numpy_helper.from_array(np.array(True), "go")])
    at = next(i for i, node in enumerate(made.graph.node) if node.op_type == "Unsqueeze")
    made.graph.node[at].input[0] = "looped"
    made.graph.node.insert(at, loop)
    return made


def inside_a_loop(kind):
    """The whole layer is the body of a Loop, or of a Scan over one element."""
    made = nodes()
    tensor, outputs = made.graph.output, [f"{x}_out" for x in ("q", "k")]
    inner = [n("Identity", ["going"], ["still"])] * (kind == "Loop")
    given = [info("step", TensorProto.INT64), info("going", TensorProto.BOOL)] if kind == "Loop" else []
    of_body = [info("still", TensorProto.BOOL), *tensor] if kind == "Loop" else tensor
    given = given or [info("one_element", TensorProto.FLOAT)]
    body = helper.make_graph([*made.graph.node, *inner], "body", given, of_body)
    reads, marks = (["times", "go"], {}) if kind == "Loop" else (["elements"], {"num_scan_inputs": 1})
    constants = {"times": np.array(1), "go": np.array(True), "elements": np.ones(1, np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del made.graph.node[:]
    made.graph.node.append(n(kind, reads, outputs, "around", body=body, **marks))
    for value, name in zip(made.graph.output, outputs, strict=True):
        value.CopyFrom(info(name, TensorProto.FLOAT, 1, "batch", HEADS, "seq", HEAD))
    return made


@pytest.mark.parametrize(
    "make, says",
    [
        # positions that are not all there is: what is added behind them, several, and none
        (lambda: moved_by(after_a_cache(), "past_length"), "not proved: its values differ"),
        (moved_by_an_input, "its angles follow from 'offset', and not from one row of positions alone"),
        (by_axis, "its angles follow from 'positions', and not from one row of positions alone"),
        (rows_behind_a_cache, "not proved: its values differ"),
        # what the operator would do otherwise in another call
        (by_size_of_call, "depends on how many tokens there are"),
        (by_mask, "with padding, some of its tokens stand at positions below 0"),
        (of_float64, "its heads are float64, which no RotaryEmbedding takes"),
        (with_frequencies_as_an_input, "it follows from 'frequencies', an input that has a default"),
        (with_a_free_axis_more, "axis 1 of 'q' has no fixed size, which only batch and tokens may have"),
        (lambda: inside_a_loop("Loop"), "no rotation to fuse: what Loop 'around' repeats"),
        (lambda: inside_a_loop("Scan"), "no rotation to fuse: what Scan 'around' repeats"),
        (lambda: operators("halves", *tables("halves")), "its 2 rotations are operators already"),
        (nothing_turns, "has no rotation to fuse"),
        (from_an_input, "depends on the data"),
        (in_a_loop, "Loop 'loop': no operator of ai.onnx that is known here"),
    ],
)
def test_nothing_to_fuse_is_one_line_and_writes_nothing(phasor, tmp_path, make, says):
    onnx.save(make(), tmp_path / "model.onnx")
    code, said, err = phasor(
        "fuse", tmp_path / "model.onnx", "-o", tmp_path / "fused.onnx", "--length", 64 if "proved" in says else ROWS
    )
    assert (code, said) == (2, "") and says in err and len(err.splitlines()) == 1, err
    assert os.listdir(tmp_path) == ["model.onnx"]
