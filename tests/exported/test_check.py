"""`phasor check` of ONNX files: what is right is right, every mistake has its name, and what is not read is said."""

import dataclasses
import json
import os
import resource
import sys
from functools import partial

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from phasor import read_config  # noqa: E402
from phasor.tools.onnx import check  # noqa: E402

from .graphs import (  # noqa: E402
    CONFIGS,
    HEAD,
    HEADS,
    SIZES,
    attending,
    counted,
    grouped,
    in_pairs,
    info,
    joined,
    model,
    nodes,
    operators,
    projected,
    tables,
)  # fmt: skip

n = helper.make_node


@pytest.fixture
def look(tmp_path):
    """The report of a graph against a config, by way of a file."""

    def of(made, config):
        path = tmp_path / "model.onnx"
        onnx.save(made, path)
        return check(path, CONFIGS[config] if isinstance(config, str) else config)

    return of


def causes(report):
    return {site.cause for site in report.findings if site.verdict == "wrong"}


def ops(name="halves", domain="", shift=0, marks=None, **wrong):
    """Operators by tables, in which something may be wrong."""
    return operators(name, *tables(name, **wrong), domain=domain, shift=shift, **(marks or {}))


def gqa(packed=False, marks=None, **wrong):
    """One operator that turns q and k and attends."""
    return grouped(*tables("halves", **wrong), packed=packed, **(marks or {}))


def rounded(dtype=np.float16, back=np.float16, **wrong):
    return operators("halves", *(t.astype(dtype).astype(back) for t in tables("halves", **wrong)))


def wider_ladder():
    """All 16 channels by a ladder of 16, where the first 8 must turn by a ladder of 8."""
    angles = np.arange(512)[:, None] * np.array([10000.0 ** (-2 * i / 16) for i in range(8)])
    return operators("partial", *(f(angles).astype(np.float32) for f in (np.cos, np.sin)), rotary_embedding_dim=16)


def behind_a_cache(first="before", last="end"):
    """Positions behind a cache whose size has a name of its own, as torch.export names sizes: the cache is empty."""
    count = [n("Shape", [x], [f"{x}_axis"], start=2, end=3) for x in ("past", "q")]
    count += [n("Squeeze", ["past_axis"], ["before"]), n("Add", ["past_axis", "q_axis"], ["all"])]
    count += [n("Squeeze", ["all"], ["end"]), n("Add", ["end", "one"], ["more"])]
    count += [n("Range", [first, last, "one"], ["counted"]), n("Unsqueeze", ["counted", "zero"], ["positions"])]
    ids, past = (
        info("ids", TensorProto.INT64, "batch", "seq"),
        info("past", TensorProto.FLOAT, "batch", HEADS, "s88", HEAD),
    )
    return counted(count, [ids, past], {"zero": [0], "one": 1})


def gathered():
    """Tables whose rows are gathered element by element, as torch.gather is exported."""
    made, order = ops(domain="com.microsoft"), np.broadcast_to(np.arange(512)[:, None], (512, 8))
    return joined(made, [n("GatherElements", ["cos", "order"], ["rows"])], read={"cos": "rows"}, order=order)


def sliced(rows):
    """Tables cut to the length of the sequence, whose positions are counted from 0: as older Llama code is exported."""
    made = ops(rows=rows)
    cut = [n("Shape", ["q"], ["length"], start=2, end=3)]
    for x in ("cos", "sin"):
        cut += [
            n("Slice", [x, "start", "length", "start"], [f"{x}_rows"]),
            n("Unsqueeze", [f"{x}_rows", "start"], [f"{x}_of"]),
        ]
    for node in made.graph.node:
        del node.input[3]
    del made.graph.input[2]
    return joined(made, cut, read={"cos": "cos_of", "sin": "sin_of"}, start=[0])


def undeclared():
    return dataclasses.replace(read_config(CONFIGS["halves"]), max_position=None)


def shapes_computed(**wrong):
    """As the exporter before torch.export writes models: nothing in the file says the shapes of q and k."""
    made = projected()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(tables("halves", **wrong)[0], "cos"))
    return made


def warped(stated=None):
    """An operator that nobody knows: behind the rotation, or in front of a projection whose sizes are stated or not."""
    if stated is None:
        return attending(ops(), after=[n("Warp", ["q_rotated"], ["bent"], domain="mine")], q="bent")
    made = attending(ops())
    made.graph.node[0].input[0] = "bent"
    if stated:
        made.graph.value_info.append(info("bent", TensorProto.FLOAT, "batch", "seq", 32))
    return joined(made, [n("Warp", ["x"], ["bent"], domain="mine")])


def whole_in_a_branch():
    made = attending(nodes())
    output = [info("out", TensorProto.FLOAT, "batch", HEADS, "seq", HEAD)]
    bodies = {f"{word}_branch": helper.make_graph(made.graph.node[:], word, [], output) for word in ("then", "else")}
    del made.graph.node[:]
    return joined(made, [n("If", ["yes"], ["out"], "if", **bodies)], yes=True)


def hidden_in_a_branch():
    inner = n("RotaryEmbedding", ["q", "cos", "sin", "positions"], ["y"], "hidden")
    body = helper.make_graph([inner], "body", [], [info("y", TensorProto.FLOAT, None)])
    return joined(ops(), after=[n("If", ["yes"], ["z"], "if", then_branch=body, else_branch=body)], yes=True)


TEMPERED = {
    "model_type": "ministral3", **SIZES, "head_dim": HEAD, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128,
        "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
    },
}  # fmt: skip


def tempered(q="q_long"):
    """Ministral 3 multiplies queries by 1 + 0.1 ln(1 + floor(position / 128)), which is no fault of the rotation."""
    after = [n("Cast", ["positions"], ["at"], to=TensorProto.FLOAT), n("Div", ["at", "length"], ["windows"])]
    after += [n("Floor", ["windows"], ["whole"]), n("Add", ["whole", "ones"], ["more"]), n("Log", ["more"], ["log"])]
    after += [n("Mul", ["log", "beta"], ["grown"]), n("Add", ["grown", "ones"], ["by"])]
    after += [n("Unsqueeze", ["by", "axes"], ["by_token"]), n("Mul", ["q_rotated", "by_token"], ["q_long"])]
    numbers = {name: np.float32(x) for name, x in (("length", 128.0), ("ones", 1.0), ("beta", 0.1))}
    return attending(joined(ops("yarn", factor=1.0), **numbers, axes=[1, 3]), after=after, q=q)


def only_one():
    made = ops()
    del made.graph.node[1]
    return joined(made, after=[n("Identity", ["k"], ["k_rotated"])])


def tables_from_data():
    made = ops()
    del made.graph.initializer[:]
    made.graph.input.extend(info(name, TensorProto.FLOAT, 512, 8) for name in ("cos", "sin"))
    return made


def two_positions():
    made = ops(shift=1)
    del made.graph.initializer[2]
    made.graph.input.append(info("shift", TensorProto.INT64))
    return made


def first_position():
    """com.microsoft's operator takes one for all tokens; which number it is, is not known, so 0 is taken."""
    made = ops(domain="com.microsoft")
    made.graph.input[2].CopyFrom(info("positions", TensorProto.INT64, 1))
    return made


def fixed(made, tokens):
    """The same graph for so many tokens and no others."""
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "seq":
                dim.dim_value = tokens
    return made


def enormous():
    """Tables that would fill the memory."""
    wide = [n("Expand", ["cos", "shape"], ["wide"]), n("Slice", ["wide", "zero", "rows"], ["narrow"])]
    made = joined(ops(), wide, shape=[2**40, 512, 8], zero=[0], rows=[1])
    made.graph.node[2].input[1] = "narrow"
    return made


def rows_of_the_first(made):
    """The second sequence of a batch is turned by the positions of the first."""
    first = [n("Gather", ["positions", "row"], ["one_row"], axis=0), n("Shape", ["positions"], ["both"])]
    first += [n("Expand", ["one_row", "both"], ["shared"])]
    return joined(made, first, read={"positions": "shared"}, row=[0])


def of_opset_18():
    """What torch.onnx.export writes without a word if it is asked for opset 26."""
    made = ops()
    made.opset_import[0].version = 18
    return made


def by_a_function():
    made, opset = ops(), [helper.make_opsetid("", 23)]
    node, inner = made.graph.node[0], n("RotaryEmbedding", ["a", "b", "c", "d"], ["y"])
    made.functions.append(helper.make_function("mine", "Turn", ["a", "b", "c", "d"], ["y"], [inner], opset))
    made.opset_import.append(helper.make_opsetid("mine", 1))
    node.CopyFrom(n("Turn", list(node.input), list(node.output), "call", domain="mine"))
    return made


def without_inputs():
    made = ops()
    del made.graph.node[0].input[:]
    return made


SHORT, LONG = 1.0 + np.arange(HEAD // 2) / 4, 2.0 + np.arange(HEAD // 2)
STRETCHED = {
    "model_type": "phi3", **SIZES, "num_key_value_heads": HEADS, "rope_theta": 10000.0, "pad_token_id": 0,
    "original_max_position_embeddings": 128,
    "rope_scaling": {"type": "longrope", "short_factor": SHORT.tolist(), "long_factor": LONG.tolist()},
}  # fmt: skip


def stretched(factors, wrong=1.0):
    """Tables of LongRoPE, arXiv:2402.13753: frequencies divided pair by pair, sqrt(1 + ln(512 / 128) / ln 128)."""
    angles = np.arange(512)[:, None] * 10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2)) / factors * wrong
    scale = np.sqrt(1 + np.log(4) / np.log(128))
    return {"cos": (scale * np.cos(angles)).astype(np.float32), "sin": (scale * np.sin(angles)).astype(np.float32)}


def chosen(then, otherwise, least=128, by="mask", data=STRETCHED):
    """Tables ``then`` if a mask, or the largest position and one, says that there are more than ``least`` tokens."""
    made, n = operators("halves", *then.values()), helper.make_node
    del made.graph.initializer[:]
    bodies = {}
    for branch, held in (("then_branch", then), ("else_branch", otherwise)):
        outputs = [info(f"{t}_{branch}", TensorProto.FLOAT, None, None) for t in held]
        tensors = [numpy_helper.from_array(table, f"{t}_{branch}") for t, table in held.items()]
        inner = [n("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
        for output in outputs:
            output.name += "_out"
        bodies[branch] = helper.make_graph(inner, branch, [], outputs, tensors)
    count = [n("Shape", ["mask"], ["all"], start=1), n("Squeeze", ["all"], ["count"])]
    if by != "mask":
        count = [n("ReduceMax", ["positions"], ["last"], keepdims=0), n("Add", ["last", "one"], ["count"])]
    nodes = [*count, n("Greater", ["count", "least"], ["many"]), n("If", ["many"], ["cos", "sin"], "if", **bodies)]
    nodes += made.graph.node
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.input.append(info("mask", TensorProto.INT64, "batch", "seq"))
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in (("least", least), ("one", 1)))
    return made


BOTH = "the config has 2 rotations, and {} were found in the graph"
LONGER = "in the tables that {} tokens take"
OTHERS = "those of sequences of {} tokens, and must be those of {}"
L, S = partial(stretched, LONG), partial(stretched, SHORT)


def of_halves(**wrong):
    return dict(zip(("cos", "sin"), tables("halves", **wrong), strict=True))


# What is made, for which config, the verdict or the cause of what is wrong, and what is said.
CASES = {
    **{f"{name}, {domain or 'ai.onnx'}": (partial(ops, name, domain), name, "right", "its tables end at position 511")
       for name in CONFIGS for domain in ("", "com.microsoft")},
    **{f"{name}, nodes": (partial(nodes, name), name, "right", "plain nodes up to 'q_rotated'") for name in CONFIGS},
    "attending": (lambda: attending(ops("partial")), "partial", "right", "layer 0"),
    "nodes, attending": (lambda: attending(nodes("yarn")), "yarn", "right", ""),
    **{f"{cause}, {domain or 'ai.onnx'}": (partial(ops, name, domain, **wrong), name, cause, said)
       for domain in ("", "com.microsoft") for cause, name, wrong, said in (
        ("base", "halves", {"base": 1e4}, "first at position 1, head 0, channel 1"),
        ("scaling", "linear", {"scaled": False}, ""),
        ("attention_factor", "yarn", {"factor": 1.0}, ""),
        ("layout", "halves", {"marks": {"interleaved": 1}}, ""),
        ("positions", "halves", {"shift": 1}, ""),
        ("table_length", "halves", {"rows": 64}, "positions 64 to 511 cannot be rotated, and the config declares 512"),
    )},
    "the last row": (partial(ops, rows=511), "halves", "table_length", ""),
    "first what is wrong where it has rows": (partial(ops, rows=64, base=1e4), "halves", "base",
        "the base is 10000, and must be 500000"),
    "direction": (lambda: operators("halves", tables("halves")[0], -tables("halves")[1]), "halves", "direction", ""),
    "rounded tables": (partial(rounded, back=np.float32), "halves", "low_precision",
        "cos and sin were rounded to float16"),
    "half precision": (rounded, "halves", "right", "its tables and products are in half precision"),
    "half precision, base": (partial(rounded, base=4e5), "halves", "base", ""),
    "nodes, base": (partial(nodes, base=1e4), "halves", "base", ""),
    "nodes, scaling": (partial(nodes, "linear", scaled=False), "linear", "scaling", ""),
    "nodes, attention factor": (partial(nodes, "yarn", 1.0), "yarn", "attention_factor", ""),
    "nodes, layout": (partial(nodes, wrong="layout"), "halves", "layout", ""),
    "nodes, the other layout": (partial(nodes, "interleaved", wrong="layout"), "interleaved", "layout", ""),
    "nodes, positions": (partial(nodes, "partial", shift=2), "partial", "positions", ""),
    "nodes, direction": (partial(nodes, "partial", wrong="direction"), "partial", "direction", ""),
    "nodes, minus": (partial(nodes, wrong="lost_minus"), "halves", "lost_minus", ""),
    "attending, minus": (lambda: attending(nodes(wrong="lost_minus")), "halves", "lost_minus", ""),
    "attending, positions": (lambda: attending(ops(shift=1)), "halves", "positions", ""),
    "too many channels": (wider_ladder, "partial", "rotary_dim", "only 8 must be"),
    "tables for fewer channels": (partial(ops, "partial", marks={"rotary_embedding_dim": 16}), "partial", "not shown",
        ""),
    "attention that rotates": (gqa, "halves", "right", ""),
    "attention, layout": (partial(gqa, marks={"rotary_interleaved": 1}), "halves", "layout", ""),
    "attention, base": (partial(gqa, base=1e6), "halves", "base", ""),
    "attention, rows": (partial(gqa, rows=64), "halves", "table_length", "positions 64 to 511"),
    "q, k and v in one": (partial(gqa, True), "halves", "right", ""),
    "q, k and v in one, base": (partial(gqa, True, base=1e6), "halves", "base", ""),
    "wider heads": (gqa, CONFIGS["halves"] | {"hidden_size": 128}, "not shown",
                    "its heads have 16 channels, and those of the config 64"),
    "pairs": (in_pairs, "interleaved", "right", ""),
    "pairs, another config": (in_pairs, "halves", "unknown", ""),  # the layout and the base are others, too
    "a cache": (behind_a_cache, "halves", "right", ""),
    "a cache, positions": (partial(behind_a_cache, "one", "more"), "halves", "positions", ""),
    "gathered": (gathered, "halves", "right", "its tables end at position 511"),
    "cut tables": (partial(sliced, 512), "halves", "right", ""),
    "cut tables, rows": (partial(sliced, 511), "halves", "table_length", ""),
    "no declared length": (partial(ops, rows=64), undeclared, "right",
        "the config declares no length that they must reach"),
    "computed sizes": (shapes_computed, "halves", "right", ""),
    "computed sizes, base": (partial(shapes_computed, base=1e6), "halves", "unknown", ""),
    "unknown behind": (warped, "halves", "not shown", "not run: Warp 'bent': no operator of mine that is known here"),
    "unknown in front": (partial(warped, False), "halves", "not shown", ""),
    "unknown, stated": (partial(warped, True), "halves", "right", ""),
    "all in a branch": (whole_in_a_branch, "halves", "not shown", "it stands in a branch"),
    "hidden in a branch": (hidden_in_a_branch, "halves", "not shown",
        "hidden: RotaryEmbedding of ai.onnx: it stands in a branch"),
    "temperature": (tempered, TEMPERED, "right", ""),
    "no temperature": (partial(tempered, "q_rotated"), TEMPERED, "unknown", "1 of 2 rotations"),
    "one rotation": (only_one, "halves", "not shown", BOTH.format(1)),
    "no rotation": (lambda: model([n("Identity", [x], [f"{x}_rotated"]) for x in "qk"], {}), "halves",
        "not shown", BOTH.format(0)),
    "tables from data": (tables_from_data, "halves", "not shown",
                         "it is multiplied by what depends on the data (mul), the inputs 'q', 'cos', 'sin'"),
    "two positions": (two_positions, "halves", "not shown",
                      "it depends on the inputs 'positions', 'shift': which of them are positions?"),
    "one position": (first_position, "halves", "right", ""),
    **{f"{count} tokens": (lambda count=count: fixed(ops(), count), "halves", "right", "") for count in (1, 100)},
    **{f"{count} tokens, base": (lambda count=count: fixed(ops(base=1e6), count), "halves", "base", "")
       for count in (1, 100)},
    "position 0": (lambda: fixed(gqa(base=1e6), 1), "halves", "not shown",
        "one token does not show whether positions turn it"),
    "enormous": (enormous, "halves", "not shown", "Expand 'wide': a value of 1099511627776 x 512 x 8 is too large"),
    "stray": (lambda: joined(nodes(), after=[n("Sin", ["angles"], ["other"], "lonely")]), "halves", "not shown",
              "1 nodes that form cos or sin belong to no rotation that was found: lonely"),
    "first row": (lambda: rows_of_the_first(ops()), "halves", "positions",
                  "the second sequence of a batch is not rotated by its own positions"),
    "first row, nodes": (lambda: rows_of_the_first(nodes()), "halves", "positions", "the second sequence of a batch"),
    "opset": (of_opset_18, "halves", "not shown", "opset 18 has no such operator (it came with 23)"),
    "a function": (by_a_function, "halves", "right", ""),
    "no inputs": (without_inputs, "halves", "not shown",
        "RotaryEmbedding 'turn_q': it has no input that it could rotate"),
    **{f"lengths by {by}{said}": (partial(chosen, then, other, least, by=by), STRETCHED, cause, said)
       for by in ("mask", "positions") for then, other, least, cause, said in (
        (L(), S(), 128, "right", "an If chooses its tables by 'many': looked at those of 128 and 64 tokens"),
        (L(1.1), S(), 128, "unknown", LONGER.format(512)),
        (L(), S(1.1), 128, "unknown", LONGER.format(128)),
        (L(), S(), 127, "seq_len", OTHERS.format(512, 128)),
        (L(), S(), 300, "seq_len", LONGER.format(129)),
        (L(), S(), 600, "seq_len", OTHERS.format(128, 512)),
    )},
    "one kind": (lambda: chosen(of_halves(), of_halves()), "halves", "right", ""),
    "one kind, long": (lambda: chosen(of_halves(base=1e4), of_halves()), "halves", "base", ""),
    "one kind, short": (lambda: chosen(of_halves(), of_halves(base=1e4)), "halves", "base", ""),
    "one length": (lambda: fixed(chosen(of_halves(), of_halves()), 100), "halves", "right",
        "they were looked at for one length only"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_graph_beside_its_config(look, case):
    make, config, expected, said = CASES[case]
    report = look(make(), config() if callable(config) else config)
    verdict = expected if expected in ("right", "not shown") else "wrong"
    assert (report.verdict, report.exit_code) == (verdict, int(verdict != "right")), str(report)
    assert causes(report) == ({expected} if verdict == "wrong" else set()) and said in str(report), str(report)


def test_q_is_before_k_and_a_model_without_rotation_is_refused(look):
    assert [(site.layer, site.where) for site in look(ops(), "halves").findings] == [(0, "turn_q"), (0, "turn_k")]
    config = {"model_type": "llama4_text", **SIZES, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
    bare = dataclasses.replace(read_config(config), layers=(None,) * 4)
    with pytest.raises(ValueError, match="config must have a layer that rotates, got llama4_text with none"):
        look(ops(), bare)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["halves"]))
    return path


def test_exit_codes(phasor, tmp_path, config):
    path = tmp_path / "model.onnx"
    onnx.save(operators("halves", *tables("halves")), path)
    code, said, _ = phasor("check", path, "--config", config)
    assert code == 0 and "\nright: layer 0, turn_q: RotaryEmbedding of ai.onnx, interleaved=0" in said
    onnx.save(operators("halves", *tables("halves"), shift=1), path)
    code, said, _ = phasor("check", path, "--config", config, "--json")
    found = json.loads(said)
    assert code == 1 and found["equal"] is False and {s["cause"] for s in found["findings"]} == {"positions"}
    for wrong in (("check", path), ("check", path, "--config", config, "--against", path)):
        code, _, err = phasor(*wrong)
        assert code == 2 and "name one" in err and len(err.splitlines()) == 1
    assert phasor("check", path, "--against", path, "--part", "x")[0] == 2


def kept_in(tensor, place):
    """The values of a tensor, as those of another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=place)


def apart(path, change=lambda made, beside: None):
    """A file whose tables lie in weights.bin, with something changed."""
    onnx.save(ops(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    made = onnx.load(path, load_external_data=False)
    change(made, path.with_name("weights.bin"))
    onnx.save(made, path)


def with_tables_apart(change):
    return partial(apart, change=change)


def with_change(change, make=ops):
    def write(path):
        made = make()
        change(made)
        onnx.save(made, path)

    return write


def elsewhere(place):
    return with_tables_apart(lambda made, _: [kept_in(tensor, place) for tensor in made.graph.initializer])


def shorter(made, _):
    next(entry for entry in made.graph.initializer[0].external_data if entry.key == "length").value = "100"


def linked(_, beside):
    beside.unlink()
    beside.symlink_to("/etc/passwd")


def functions(made, bodies):
    """Functions of somebody's own, of which the last is called."""
    sets = [helper.make_opsetid("", 23), helper.make_opsetid("mine", 1)]
    made.functions.extend(helper.make_function("mine", f"F{i}", ["x"], ["y"], b, sets) for i, b in enumerate(bodies))
    made.opset_import.append(sets[1])
    made.graph.node.append(n(f"F{len(bodies) - 1}", ["q"], ["made"], domain="mine"))


def in_a_function(place):
    node = n("Constant", [], ["y"], value=numpy_helper.from_array(np.zeros(4, np.float32), "inner"))
    kept_in(node.attribute[0].t, place)
    return with_change(lambda made: functions(made, [[node]]))


def nested(depth, itself=False):
    """Functions that call the one before twice, or one that calls itself."""
    calls = [[n(f"F{max(i - 1, 0)}", [a], [b], domain="mine") for a, b in ("xt", "ty")] for i in range(depth)]
    return with_change(lambda made: functions(made, calls if itself else [[n("Identity", ["x"], ["y"])], *calls[1:]]))


def in_a_branch(place, op="If", deep=False):
    inner, names = numpy_helper.from_array(np.zeros(4, np.float32), "inner"), ("then_branch", "else_branch")
    kept_in(inner, place)
    body = helper.make_graph([n("Identity", ["inner"], ["y"])], "body", [], [info("y", 1, 4)], [inner])
    if deep:
        again = n("If", ["yes"], ["y"], **dict.fromkeys(names, body))
        body = helper.make_graph([again], "outer", [], [info("y", 1, 4)])
    bodies = dict.fromkeys(("body",) if op == "Loop" else names, body)
    around = n(op, ["", "yes"] if op == "Loop" else ["yes"], ["z"], op, **bodies)
    return with_change(lambda made: joined(made, after=[around], yes=True))


def without_output(make):
    return with_change(lambda made: made.graph.node[-1].output.__delitem__(slice(None)), make)


def typed(made):
    made.graph.initializer[0].float_data.extend([1.0, 2.0])
    made.graph.initializer[0].ClearField("raw_data")


def short(made):
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:100]


def below_zero(made):
    made.graph.initializer[0].dims[0] = -512


def reads(what):
    def change(made):
        made.graph.node[0].input[0] = what

    return with_change(change, partial(ops, shift=1))


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**31)  # a hole: it takes no room


def truncated(path):
    onnx.save(ops(), path)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda path: None, "the ONNX file must exist"),
        (lambda path: path.mkdir(), "which is absent or a folder"),
        (lambda path: path.write_bytes(b""), "is not an ONNX file, or is damaged"),
        (lambda path: path.write_bytes(b"{}"), "is not an ONNX file, or is damaged"),
        (lambda path: path.write_bytes(bytes(range(256)) * 50), "is not an ONNX file, or is damaged"),
        (truncated, "is damaged"),
        (reads("q_rotated"), "is read before it is made"),
        (reads("shifted"), "'shifted' is read before it is made"),
        (huge, "longer than 2 GiB"),
        (
            with_tables_apart(lambda _, beside: beside.unlink()),
            "keeps 'cos' in 'weights.bin', which is absent; put that file beside it",
        ),
        (with_tables_apart(lambda _, beside: os.truncate(beside, 100)), "beyond the end of 'weights.bin'"),
        (with_change(short), "'cos' must have 16384 bytes, 4096 values of FLOAT, got 100; export it anew"),
        (with_tables_apart(shorter), "'cos' must have 16384 bytes, 4096 values of FLOAT, got 100"),
        (with_change(typed), "'cos' must have 16384 bytes, 4096 values of FLOAT, got 8"),
        (with_change(below_zero), "'cos' must have sizes of at least 0, got [-512, 8]"),
        (with_tables_apart(linked), "which is not in its folder; nothing else is opened"),
        (elsewhere("/etc/passwd"), "which is not in its folder; nothing else is opened"),
        (elsewhere("../weights.bin"), "which is not in its folder; nothing else is opened"),
        (in_a_function("../weights.bin"), "keeps 'inner' in '../weights.bin', which is not in its folder"),
        (in_a_function("weights.bin"), "keeps 'inner' in 'weights.bin', which is absent"),
        (nested(21), "is damaged (its functions, written out, are 3,145,729 nodes, and at most 1,048,576 are read)"),
        (nested(1, itself=True), "is damaged (its functions call each other without end)"),
        (in_a_branch("/etc/passwd"), "keeps 'inner' in '/etc/passwd', which is not in its folder"),
        (in_a_branch("weights.bin", deep=True), "keeps 'inner' in 'weights.bin', which is absent"),
        (in_a_branch("../weights.bin", op="Loop"), "keeps 'inner' in '../weights.bin', which is not in its folder"),
        (without_output(gqa), "GroupQueryAttention 'attention' has no output"),
        (without_output(ops), "RotaryEmbedding 'turn_k' has no output"),
        (without_output(nodes), "Add 'turn_k' has no output"),
    ],
)
def test_files_that_cannot_be_read_are_one_line(phasor, tmp_path, config, make, says):
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder / "model.onnx")
    for rest in (("check", "--config", config), ("fuse", "-o", folder / "fused.onnx", "--length", 8)):
        code, said, err = phasor(rest[0], folder / "model.onnx", *rest[1:])
        assert (code, said) == (2, "") and says in err and len(err.splitlines()) == 1, err
    assert not (folder / "fused.onnx").exists()


def test_a_file_whose_range_is_long_takes_no_memory(phasor, tmp_path, config):
    """Values that a few bytes of a file say are not written out: 20 million took three gigabytes."""
    counts = [n("Range", ["z", "h", "o"], ["r"]), n("Cast", ["r"], ["f"], to=TensorProto.FLOAT)]
    onnx.save(joined(ops(), after=counts, z=0, h=20_000_000, o=1), tmp_path / "model.onnx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, of which that system counts each
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 10**9


def of_any_length(made, _):
    """Without one a tensor takes what its sizes need, and not the rest of the file."""
    for tensor in made.graph.initializer:
        tensor.external_data.remove(next(entry for entry in tensor.external_data if entry.key == "length"))


@pytest.mark.parametrize("change", [lambda *_: None, of_any_length])
def test_tables_beside_the_file_are_read(phasor, tmp_path, config, change):
    apart(tmp_path / "model.onnx", change)
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0


@pytest.mark.parametrize("factor, code", [(1.0, 0), (0.99, 1)])
def test_a_branch_that_keeps_its_tables_beside_the_file(phasor, tmp_path, config, factor, code):
    """The cosines are the constant of a branch: taken from its file, whatever folder the command runs in."""
    made, cos = ops(), tables("halves")[0]
    made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "cos"))
    kept = numpy_helper.from_array(cos, "kept")
    kept_in(kept, "weights.bin")
    chosen = info("chosen", TensorProto.FLOAT, None, None)
    body = helper.make_graph([n("Identity", ["kept"], ["chosen"])], "body", [], [chosen], [kept])
    onnx.save(
        joined(made, [n("If", ["yes"], ["cos"], "if", then_branch=body, else_branch=body)], yes=True),
        tmp_path / "model.onnx",
    )
    (tmp_path / "weights.bin").write_bytes((cos * np.float32(factor)).tobytes())
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == code
