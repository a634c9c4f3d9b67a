"""`phasor check` of ONNX files: what is right is right, every mistake has its name, and what is not read is said."""

import dataclasses
import json
import os
import resource
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from phasor import read_config  # noqa: E402
from phasor.tools.onnx import check  # noqa: E402

from .graphs import (  # noqa: E402
    CONFIGS,
    FACTOR,
    HEAD,
    HEADS,
    SIZES,
    attending,
    counted,
    frequencies,
    grouped,
    in_pairs,
    info,
    model,
    operators,
    plain,
    projected,
    tables,
)  # fmt: skip


@pytest.fixture
def look(tmp_path):
    """The report of a graph against a config, by way of a file."""

    def of(made, config):
        path = tmp_path / "model.onnx"
        onnx.save(made, path)
        return check(path, CONFIGS[config] if isinstance(config, str) else config)

    return of


def causes(report):
    return {site.cause for site in report.sites if site.verdict == "wrong"}


def factor_of(name):
    return FACTOR if name == "yarn" else 1.0


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_operators_that_are_right(look, name, domain):
    report = look(operators(name, *tables(name), domain=domain), name)
    assert report.equal, report.describe()
    assert [(site.layer, site.where) for site in report.sites] == [(0, "turn_q"), (0, "turn_k")]
    assert all("its tables end at position 511" in site.notes for site in report.sites)


@pytest.mark.parametrize("name", CONFIGS)
def test_plain_nodes_that_are_right(look, name):
    report = look(plain(name, frequencies(name), factor_of(name)), name)
    assert report.equal, report.describe()
    assert [site.what for site in report.sites] == ["plain nodes up to 'q_rotated'", "plain nodes up to 'k_rotated'"]


def test_the_graphs_themselves_run_and_agree():
    """Both forms and onnxruntime: otherwise the tests above would prove little."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    given = {x: rng.standard_normal((1, HEADS, 3, HEAD)).astype(np.float32) for x in ("q", "k")}
    given["positions"] = np.array([[0, 7, 300]])
    for name in CONFIGS:
        pair = operators(name, *tables(name)), plain(name, frequencies(name), factor_of(name))
        a, b = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, given)[0] for m in pair)
        np.testing.assert_allclose(a, b, atol=2e-4)  # angles of 300 radians in float32


MISTAKES = {
    "base": ("halves", lambda: tables("halves", base=10000.0), {}),
    "scaling": ("linear", lambda: tables("linear", scaled=False), {}),
    "attention_factor": ("yarn", lambda: tables("yarn", factor=1.0), {}),
    "layout": ("halves", lambda: tables("halves"), {"interleaved": 1}),
    "positions": ("halves", lambda: tables("halves"), {"shift": 1}),
    "direction": ("halves", lambda: (tables("halves")[0], -tables("halves")[1]), {}),
    "low_precision": ("halves", lambda: tuple(t.astype(np.float16).astype(np.float32) for t in tables("halves")), {}),
}


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("cause", MISTAKES)
def test_mistakes_of_operators_have_names(look, cause, domain):
    name, made, marks = MISTAKES[cause]
    report = look(operators(name, *made(), domain=domain, **marks), name)
    assert not report.equal and causes(report) == {cause}, report.describe()


def test_the_sentence_of_a_mistake(look):
    report = look(operators("halves", *tables("halves", base=10000.0)), "halves")
    assert report.sites[0].reason == "the base is 10000, and must be 500000"
    first = report.sites[0].difference
    assert (first.position, first.channel) == ((1,), 1) and "first at position 1, head 0, channel 1" in str(report)
    assert str(report).startswith("model.onnx: wrong: 2 of 2 rotations: base\nwrong: layer 0, turn_q: RotaryEmbedding")
    assert report.exit_code == 1
    low = look(operators("halves", *MISTAKES["low_precision"][1]()), "halves")
    assert "cos and sin were rounded to float16" in low.sites[0].reason


def test_a_wrong_rotary_embedding_dim(look):
    """All 16 channels by a ladder of 16, where the first 8 must turn by a ladder of 8."""
    angles = np.arange(512)[:, None] * np.array([10000.0 ** (-2 * i / 16) for i in range(8)])
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    report = look(operators("partial", cos, sin, rotary_embedding_dim=16), "partial")
    assert causes(report) == {"rotary_dim"} and "only 8 must be" in report.sites[0].reason
    report = look(operators("partial", *tables("partial"), rotary_embedding_dim=16), "partial")  # cannot even run
    assert {site.verdict for site in report.sites} == {"not shown"} and not report.equal


def test_half_precision_tables_of_half_precision_heads_are_a_note(look):
    half = tuple(t.astype(np.float16) for t in tables("halves"))
    report = look(operators("halves", *half), "halves")
    assert report.equal and "its tables and products are in half precision" in report.sites[0].notes
    wrong = tuple(t.astype(np.float16) for t in tables("halves", base=400000.0))
    assert causes(look(operators("halves", *wrong), "halves")) == {"base"}


@pytest.mark.parametrize(
    "cause, name, made",
    [
        ("base", "halves", lambda: plain("halves", frequencies("halves", base=10000.0))),
        ("scaling", "linear", lambda: plain("linear", frequencies("linear", scaled=False))),
        ("attention_factor", "yarn", lambda: plain("yarn", frequencies("yarn"))),
        ("layout", "halves", lambda: plain("halves", frequencies("halves"), wrong="layout")),
        ("layout", "interleaved", lambda: plain("interleaved", frequencies("interleaved"), wrong="layout")),
        ("positions", "partial", lambda: plain("partial", frequencies("partial"), shift=2)),
        ("direction", "partial", lambda: plain("partial", frequencies("partial"), wrong="direction")),
        ("lost_minus", "halves", lambda: plain("halves", frequencies("halves"), wrong="lost_minus")),
        ("lost_minus", "halves", lambda: attending(plain("halves", frequencies("halves"), wrong="lost_minus"))),
    ],
)
def test_mistakes_of_plain_nodes_have_names(look, cause, name, made):
    report = look(made(), name)
    assert not report.equal and causes(report) == {cause}, report.describe()


def test_attention_that_rotates_inside(look):
    report = look(grouped(*tables("halves")), "halves")
    assert report.equal and len(report.sites) == 2, report.describe()
    assert causes(look(grouped(*tables("halves"), rotary_interleaved=1), "halves")) == {"layout"}
    assert causes(look(grouped(*tables("halves", base=1e6)), "halves")) == {"base"}


def test_attention_that_takes_q_k_and_v_in_one_tensor(look):
    """As onnxruntime-genai builds most models: both rotations are counted."""
    report = look(grouped(*tables("halves"), packed=True), "halves")
    assert report.equal and [site.layer for site in report.sites] == [0, 0], report.describe()
    assert causes(look(grouped(*tables("halves", base=1e6), packed=True), "halves")) == {"base"}


def test_heads_of_another_width_than_those_of_the_config(look):
    report = look(grouped(*tables("halves")), CONFIGS["halves"] | {"hidden_size": 128})
    assert {site.verdict for site in report.sites} == {"not shown"} and report.verdict == "not shown"
    assert {s.reason for s in report.sites} == {"its heads have 16 channels, and those of the config 64"}


def test_heads_that_are_cut_into_pairs(look):
    assert look(in_pairs(), "interleaved").equal
    assert causes(look(in_pairs(), "halves")) == {"unknown"}  # the layout and the base are others, too


def test_positions_behind_a_cache_whose_size_has_a_name_of_its_own(look):
    """As torch.export names sizes: the cache is empty, so that positions begin with 0."""
    n = helper.make_node
    count = [
        *(n("Shape", [x], [f"{x}_axis"], start=2, end=3) for x in ("past", "q")),
        n("Squeeze", ["past_axis"], ["before"]),
        n("Add", ["past_axis", "q_axis"], ["all"]),
        n("Squeeze", ["all"], ["end"]),
        n("Range", ["before", "end", "one"], ["counted"]),
        n("Unsqueeze", ["counted", "zero"], ["positions"]),
    ]
    inputs = [
        info("ids", TensorProto.INT64, "batch", "seq"),
        info("past", TensorProto.FLOAT, "batch", HEADS, "s88", HEAD),
    ]
    assert look(counted(count, inputs, {"zero": [0], "one": 1}), "halves").equal
    count[-2] = n("Range", ["one", "more", "one"], ["counted"])
    count.insert(-2, n("Add", ["end", "one"], ["more"]))
    assert causes(look(counted(count, inputs, {"zero": [0], "one": 1}), "halves")) == {"positions"}


def test_tables_whose_rows_are_gathered_element_by_element(look):
    """As torch.gather is exported."""
    made = operators("halves", *tables("halves"), domain="com.microsoft")
    n = helper.make_node
    made.graph.node.insert(0, n("GatherElements", ["cos", "order"], ["cos_rows"]))
    for node in made.graph.node[1:]:
        node.input[2] = "cos_rows"
    order = np.broadcast_to(np.arange(512)[:, None], (512, 8))
    made.graph.initializer.append(numpy_helper.from_array(order, "order"))
    report = look(made, "halves")
    assert report.equal and "its tables end at position 511" in report.sites[0].notes, report.describe()


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_tables_shorter_than_the_declared_length(look, domain):
    """onnxruntime reads no row behind its tables: 1.32 raises, earlier ones read what lies there (its issue 28205)."""
    report = look(operators("halves", *tables("halves", rows=64), domain=domain), "halves")
    assert report.exit_code == 1 and causes(report) == {"table_length"}
    assert "positions 64 to 511 cannot be rotated, and the config declares 512" in report.describe()
    assert causes(look(operators("halves", *tables("halves", rows=511), domain=domain), "halves")) == {"table_length"}
    wrong = look(operators("halves", *tables("halves", rows=64, base=1e4), domain=domain), "halves")
    assert causes(wrong) == {"base"}  # what is wrong at positions that it has is said first


def test_short_tables_of_a_graph_that_counts_its_positions(look):
    """It is run on fewer tokens than its tables have rows, which are seen in the file."""
    assert look(grouped(*tables("halves")), "halves").equal
    report = look(grouped(*tables("halves", rows=64)), "halves")
    assert causes(report) == {"table_length"} and "positions 64 to 511" in report.describe()


def sliced(rows):
    """Tables cut to the length of the sequence, whose positions are counted from 0: as older Llama code is exported."""
    n, made = helper.make_node, operators("halves", *tables("halves", rows=rows))
    turned = list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.append(n("Shape", ["q"], ["length"], start=2, end=3))
    for x in ("cos", "sin"):
        made.graph.node.append(n("Slice", [x, "start", "length", "start"], [f"{x}_rows"]))
        made.graph.node.append(n("Unsqueeze", [f"{x}_rows", "start"], [f"{x}_of"]))
    for node in turned:
        del node.input[1:]
        node.input.extend(["cos_of", "sin_of"])
    made.graph.node.extend(turned)
    made.graph.initializer.append(numpy_helper.from_array(np.array([0]), "start"))
    del made.graph.input[2]
    return made


def test_short_tables_that_are_cut_to_the_sequence(look):
    assert look(sliced(512), "halves").equal
    assert causes(look(sliced(511), "halves")) == {"table_length"}


def test_tables_that_end_where_no_length_is_declared(look):
    undeclared = dataclasses.replace(read_config(CONFIGS["halves"]), max_position=None)
    report = look(operators("halves", *tables("halves", rows=64)), undeclared)
    assert report.equal and "the config declares no length that they must reach" in report.describe()


def test_sizes_that_the_graph_computes(look):
    """As the exporter before torch.export writes models: nothing in the file says the shapes of q and k."""
    made = projected()
    assert look(made, "halves").equal
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(tables("halves", base=1e6)[0], "cos"))
    assert not look(made, "halves").equal


@pytest.mark.parametrize("name", CONFIGS)
def test_attention_whose_weights_are_not_read(look, name):
    """q and k are found where they meet, between projections whose weights could spoil every value."""
    for made in (operators(name, *tables(name)), plain(name, frequencies(name), factor_of(name))):
        report = look(attending(made), name)
        assert report.equal and [site.layer for site in report.sites] == [0, 0], report.describe()
    assert causes(look(attending(operators(name, *tables(name), shift=1)), name)) == {"positions"}


def test_an_operator_that_nobody_knows_is_said(look):
    """It may do anything between a rotation and its attention; where the file states sizes, what follows is seen."""
    made = operators("halves", *tables("halves"))
    report = look(
        attending(made, after=[helper.make_node("Warp", ["q_rotated"], ["bent"], domain="mine")], q="bent"), "halves"
    )
    assert report.verdict == "not shown"
    assert "not run: Warp 'bent': no operator of mine that is known here" in report.describe()
    stated = attending(made, before=[helper.make_node("Warp", ["x"], ["bent"], domain="mine")])
    stated.graph.node[3].input[0] = "bent"
    nodes = sorted(stated.graph.node, key=lambda node: node.op_type != "Warp")
    del stated.graph.node[:]
    stated.graph.node.extend(nodes)
    assert look(stated, "halves").verdict == "not shown"
    stated.graph.value_info.append(info("bent", TensorProto.FLOAT, "batch", "seq", 32))
    assert look(stated, "halves").equal


def test_a_rotation_in_a_branch_is_not_shown(look):
    made = attending(plain("halves", frequencies("halves")))
    inner = made.graph.node[:]
    branches = {}
    for branch in ("then_branch", "else_branch"):
        output = [info("out", TensorProto.FLOAT, "batch", HEADS, "seq", HEAD)]
        branches[branch] = helper.make_graph(inner, branch, [], output)
    del made.graph.node[:]
    made.graph.node.append(helper.make_node("If", ["yes"], ["out"], "if", **branches))
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    report = look(made, "halves")
    assert {site.verdict for site in report.sites} == {"not shown"} and not report.equal, report.describe()
    assert {site.reason for site in report.sites} == {"it stands in a branch"}


TEMPERED = {
    "model_type": "ministral3", **SIZES, "head_dim": HEAD, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128,
        "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
    },
}  # fmt: skip


def test_queries_that_are_longer_farther_away(look):
    """Ministral 3 multiplies them by 1 + 0.1 ln(1 + floor(position / 128)), which is no fault of the rotation."""
    n, numbers = helper.make_node, {"length": 128.0, "ones": 1.0, "beta": 0.1}
    after = [n("Cast", ["positions"], ["at"], to=TensorProto.FLOAT), n("Div", ["at", "length"], ["windows"])]
    after += [n("Floor", ["windows"], ["whole"]), n("Add", ["whole", "ones"], ["more"]), n("Log", ["more"], ["log"])]
    after += [n("Mul", ["log", "beta"], ["grown"]), n("Add", ["grown", "ones"], ["by"])]
    after += [n("Unsqueeze", ["by", "axes"], ["by_token"]), n("Mul", ["q_rotated", "by_token"], ["q_long"])]
    made = operators("yarn", *tables("yarn", factor=1.0))
    made.graph.initializer.extend(numpy_helper.from_array(np.float32(v), name) for name, v in numbers.items())
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 3]), "axes"))
    assert look(attending(made, after=after, q="q_long"), TEMPERED).equal
    report = look(attending(made), TEMPERED)
    assert [site.verdict for site in report.sites] == ["wrong", "right"], report.describe()


def one_rotation():
    made = operators("halves", *tables("halves"))
    del made.graph.node[1]
    made.graph.node.append(helper.make_node("Identity", ["k"], ["k_rotated"]))
    return made


def test_a_rotation_that_is_missing_is_counted(look):
    report = look(one_rotation(), "halves")
    assert not report.equal and report.sites[0].verdict == "right"
    assert "the config has 2 rotations, and 1 were found in the graph" in report.describe()


def test_nothing_that_turns(look):
    nodes = [helper.make_node("Identity", [x], [f"{x}_rotated"]) for x in ("q", "k")]
    report = look(model(nodes, {}), "halves")
    assert not report.equal and str(report).startswith("model.onnx: not shown: 0 rotations\n")
    assert report.exit_code == 1 and "the config has 2 rotations, and 0 were found in the graph" in str(report)


def test_tables_from_data_are_not_read(look):
    made = operators("halves", *tables("halves"))
    del made.graph.initializer[:]
    made.graph.input.extend(info(n, TensorProto.FLOAT, 512, 8) for n in ("cos", "sin"))
    report = look(made, "halves")
    assert not report.equal and {site.verdict for site in report.sites} == {"not shown"}
    reason = "it is multiplied by what depends on the data (mul), the inputs 'q', 'cos', 'sin'"
    assert report.sites[0].reason == reason


def test_two_inputs_that_may_be_positions_are_not_guessed(look):
    made = operators("halves", *tables("halves"), shift=1)
    del made.graph.initializer[2]
    made.graph.input.append(info("shift", TensorProto.INT64))
    report = look(made, "halves")
    assert not report.equal and {site.verdict for site in report.sites} == {"not shown"}
    assert "it depends on the inputs 'positions', 'shift': which of them are positions?" in report.sites[0].reason


def test_one_first_position_for_all_tokens(look):
    """com.microsoft's operator takes it; which number it is, is not known, so 0 is taken."""
    made = operators("halves", *tables("halves"), domain="com.microsoft")
    made.graph.input[2].CopyFrom(info("positions", TensorProto.INT64, 1))
    assert look(made, "halves").equal


def fixed(made, tokens):
    """The same graph for so many tokens and no others."""
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "seq":
                dim.dim_value = tokens
    return made


@pytest.mark.parametrize("tokens", [1, 3, 100])
def test_a_graph_of_fixed_length_is_asked_as_often_as_it_takes(look, tokens):
    """A graph for decoding has one token: at position 0 alone, everything would be right."""
    assert look(fixed(operators("halves", *tables("halves")), tokens), "halves").equal
    wrong = look(fixed(operators("halves", *tables("halves", base=1e6)), tokens), "halves")
    assert causes(wrong) == {"base"}


def test_position_0_alone_proves_nothing(look):
    report = look(fixed(grouped(*tables("halves", base=1e6)), 1), "halves")
    assert {site.verdict for site in report.sites} == {"not shown"}
    assert "one token does not show whether positions turn it" in report.sites[0].reason


def test_tables_that_would_fill_the_memory_are_not_formed(look):
    made = operators("halves", *tables("halves"))
    made.graph.node.insert(0, helper.make_node("Expand", ["cos", "shape"], ["wide"]))
    made.graph.node.insert(1, helper.make_node("Slice", ["wide", "zero", "rows"], ["narrow"]))
    constants = {"shape": [2**40, 512, 8], "zero": [0], "rows": [1]}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), n) for n, v in constants.items())
    made.graph.node[2].input[1] = "narrow"
    report = look(made, "halves")
    assert "Expand 'wide': a value of 1099511627776 x 512 x 8 is too large" in report.sites[0].reason
    assert report.sites[1].verdict == "right"


def test_cos_and_sin_that_belong_to_nothing_are_said(look):
    made = plain("halves", frequencies("halves"))
    made.graph.node.extend([helper.make_node("Sin", ["angles"], ["other"], "lonely")])
    report = look(made, "halves")
    assert not report.equal and report.stray == ("lonely",)
    assert "1 nodes that form cos or sin belong to no rotation that was found: lonely" in report.describe()


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


@pytest.mark.parametrize("by", ["mask", "positions"])
def test_tables_that_a_length_chooses_are_looked_at_for_both_lengths(look, by):
    short, long = stretched(SHORT), stretched(LONG)
    report = look(chosen(long, short, by=by), STRETCHED)
    assert report.equal, report.describe()
    lengths = "128 and 64", "512 and 129"
    told = [f"an If chooses its tables by 'many': looked at those of {tokens} tokens" for tokens in lengths]
    assert all(set(told) <= set(site.notes) for site in report.sites), report.describe()
    for wrong, says in (
        (chosen(stretched(LONG, 1.1), short, by=by), "in the tables that 512 tokens take"),
        (chosen(long, stretched(SHORT, 1.1), by=by), "in the tables that 128 tokens take"),
        (chosen(short, long, by=by), "in the tables that 128 tokens take"),
        (chosen(long, short, 127, by=by), "those of sequences of 512 tokens, and must be those of 128"),
        (chosen(long, short, 300, by=by), "in the tables that 129 tokens take"),
        (chosen(long, short, 129, by=by), "in the tables that 129 tokens take"),
        (chosen(long, short, 600, by=by), "those of sequences of 128 tokens, and must be those of 512"),
    ):
        report = look(wrong, STRETCHED)
        assert {site.verdict for site in report.sites} == {"wrong"}, report.describe()
        assert all(says in site.reason for site in report.sites), report.describe()


def test_tables_that_a_length_chooses_where_the_config_knows_one_kind(look):
    sound, off = (dict(zip(("cos", "sin"), t, strict=True)) for t in (tables("halves"), tables("halves", base=1e4)))
    assert look(chosen(sound, sound), "halves").equal
    assert causes(look(chosen(off, sound), "halves")) == causes(look(chosen(sound, off), "halves")) == {"base"}
    fixed_length = look(fixed(chosen(off, sound), 100), "halves")
    assert any("they were looked at for one length only" in note for note in fixed_length.sites[0].notes)


@pytest.mark.parametrize("made", [operators, plain], ids=["operators", "plain nodes"])
def test_positions_of_the_first_sequence_for_all_of_a_batch(look, made):
    sound = made("halves", *(tables("halves") if made is operators else [frequencies("halves")]))
    assert look(sound, "halves").equal
    constants = {"row": np.array([0]), "batched": np.array([0])}
    sound.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    nodes = list(sound.graph.node)
    for node in nodes:
        node.input[:] = ["shared" if name == "positions" else name for name in node.input]
    first = [helper.make_node("Gather", ["positions", "row"], ["one_row"], axis=0)]
    first += [
        helper.make_node("Shape", ["positions"], ["both"]),
        helper.make_node("Expand", ["one_row", "both"], ["shared"]),
    ]
    del sound.graph.node[:]
    sound.graph.node.extend(first + nodes)
    report = look(sound, "halves")
    assert causes(report) == {"positions"} and not report.equal, report.describe()
    assert "the second sequence of a batch is not rotated by its own positions" in report.sites[0].reason


def test_what_stands_in_a_branch_is_said(look):
    inner = helper.make_node("RotaryEmbedding", ["q", "cos", "sin", "positions"], ["y"], "hidden")
    body = helper.make_graph([inner], "body", [], [info("y", TensorProto.FLOAT, None)])
    made = operators("halves", *tables("halves"))
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    made.graph.node.append(helper.make_node("If", ["yes"], ["z"], "if", then_branch=body, else_branch=body))
    report = look(made, "halves")
    assert not report.equal and [s.reason for s in report.sites if s.where == "hidden"] == ["it stands in a branch"] * 2


def test_an_operator_that_the_opset_of_the_file_has_not(look):
    """What torch.onnx.export writes without a word if it is asked for opset 26."""
    made = operators("halves", *tables("halves"))
    made.opset_import[0].version = 18
    report = look(made, "halves")
    assert not report.equal and "opset 18 has no such operator (it came with 23)" in report.sites[0].reason


def test_local_functions_are_looked_into(look):
    made = operators("halves", *tables("halves"))
    node = made.graph.node[0]
    inner = helper.make_node("RotaryEmbedding", ["a", "b", "c", "d"], ["y"])
    opset = [helper.make_opsetid("", 23)]
    made.functions.append(helper.make_function("mine", "Turn", ["a", "b", "c", "d"], ["y"], [inner], opset))
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.graph.node[0].CopyFrom(helper.make_node("Turn", list(node.input), list(node.output), "call", domain="mine"))
    assert look(made, "halves").equal


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["halves"]))
    return path


def test_an_operator_without_inputs_is_not_read(look):
    made = operators("halves", *tables("halves"))
    del made.graph.node[0].input[:]
    report = look(made, "halves")
    assert [site.verdict for site in report.sites] == ["not shown", "right"]
    assert report.sites[0].reason == "RotaryEmbedding 'turn_q': it has no input that it could rotate"


def test_a_model_with_temperatures_and_no_rotating_layer(look):
    config = {"model_type": "llama4_text", **SIZES, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
    model = read_config(config)
    assert model.temperatures[3] is not None
    bare = dataclasses.replace(model, layers=(None,) * 4)
    with pytest.raises(ValueError, match="config must have a layer that rotates, got llama4_text with none"):
        look(operators("halves", *tables("halves")), bare)


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


def saved_apart(path):
    made = operators("halves", *tables("halves"))
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return onnx.load(path, load_external_data=False)


def at(tensor, place):
    """The values of a tensor, as those of another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=place)


def elsewhere(place):
    def change(path):
        made = saved_apart(path)
        for tensor in made.graph.initializer:
            at(tensor, place)
        onnx.save(made, path)

    return change


def constant(value):
    return helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(4, np.float32), value))


def in_a_function(place):
    def change(path):
        made = operators("halves", *tables("halves"))
        node = constant("inner")
        at(node.attribute[0].t, place)
        made.functions.append(helper.make_function("mine", "Make", [], ["c"], [node], [helper.make_opsetid("", 23)]))
        made.opset_import.append(helper.make_opsetid("mine", 1))
        made.graph.node.append(helper.make_node("Make", [], ["made"], domain="mine"))
        onnx.save(made, path)

    return change


def nested(depth, itself=False):
    """Functions that call the one before twice, or one that calls itself."""

    def change(path):
        made = operators("halves", *tables("halves"))
        sets = [helper.make_opsetid("", 23), helper.make_opsetid("mine", 1)]
        for i in range(depth):
            inner = f"F{i if itself else i - 1}"
            calls = [helper.make_node(inner, [a], [b], domain="mine") for a, b in ("xt", "ty")]
            body = calls if i or itself else [helper.make_node("Identity", ["x"], ["y"])]
            made.functions.append(helper.make_function("mine", f"F{i}", ["x"], ["y"], body, sets))
        made.opset_import.append(sets[1])
        made.graph.node.append(helper.make_node(f"F{depth - 1}", ["q"], ["made"], domain="mine"))
        onnx.save(made, path)

    return change


def in_a_branch(place, op="If", deep=False):
    def change(path):
        made = operators("halves", *tables("halves"))
        inner = numpy_helper.from_array(np.zeros(4, np.float32), "inner")
        at(inner, place)
        body = helper.make_graph(
            [helper.make_node("Identity", ["inner"], ["y"])], "body", [], [info("y", 1, 4)], [inner]
        )
        if deep:
            again = helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=body)
            body = helper.make_graph([again], "outer", [], [info("y", 1, 4)])
        bodies = {"body": body} if op == "Loop" else {"then_branch": body, "else_branch": body}
        made.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
        made.graph.node.append(helper.make_node(op, ["", "yes"] if op == "Loop" else ["yes"], ["z"], op, **bodies))
        onnx.save(made, path)

    return change


def without_output(make):
    def change(path):
        made = make()
        del made.graph.node[-1].output[:]
        onnx.save(made, path)

    return change


def short(path, apart=False, typed=False):
    made = saved_apart(path) if apart else operators("halves", *tables("halves"))
    tensor = made.graph.initializer[0]
    if apart:
        next(entry for entry in tensor.external_data if entry.key == "length").value = "100"
    elif typed:
        tensor.float_data.extend([1.0, 2.0])
        tensor.ClearField("raw_data")
    else:
        tensor.raw_data = tensor.raw_data[:100]
    onnx.save(made, path)


def below_zero(path):
    made = operators("halves", *tables("halves"))
    made.graph.initializer[0].dims[0] = -512
    onnx.save(made, path)


def absent(path):
    saved_apart(path)
    (path.parent / "weights.bin").unlink()


def cut(path):
    saved_apart(path)
    os.truncate(path.parent / "weights.bin", 100)


def linked(path):
    saved_apart(path)
    (path.parent / "weights.bin").unlink()
    (path.parent / "weights.bin").symlink_to("/etc/passwd")


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**31)  # a hole: it takes no room


def truncated(path):
    onnx.save(operators("halves", *tables("halves")), path)
    os.truncate(path, path.stat().st_size // 2)


def cyclic(path):
    made = operators("halves", *tables("halves"), shift=1)
    made.graph.node[0].input[0] = "q_rotated"
    onnx.save(made, path)


def reads_itself(path):
    made = operators("halves", *tables("halves"), shift=1)
    made.graph.node[0].input[0] = "shifted"
    onnx.save(made, path)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda path: None, "the ONNX file must exist"),
        (lambda path: path.mkdir(), "which is absent or a folder"),
        (lambda path: path.write_bytes(b""), "is not an ONNX file, or is damaged"),
        (lambda path: path.write_bytes(b"{}"), "is not an ONNX file, or is damaged"),
        (lambda path: path.write_bytes(bytes(range(256)) * 50), "is not an ONNX file, or is damaged"),
        (truncated, "is damaged"),
        (cyclic, "is read before it is made"),
        (reads_itself, "'shifted' is read before it is made"),
        (huge, "longer than 2 GiB"),
        (absent, "keeps 'cos' in 'weights.bin', which is absent; put that file beside it"),
        (cut, "beyond the end of 'weights.bin'"),
        (short, "'cos' must have 16384 bytes, 4096 values of FLOAT, got 100; export it anew"),
        (lambda path: short(path, apart=True), "'cos' must have 16384 bytes, 4096 values of FLOAT, got 100"),
        (lambda path: short(path, typed=True), "'cos' must have 16384 bytes, 4096 values of FLOAT, got 8"),
        (below_zero, "'cos' must have sizes of at least 0, got [-512, 8]"),
        (linked, "which is not in its folder; nothing else is opened"),
        (elsewhere("/etc/passwd"), "which is not in its folder; nothing else is opened"),
        (elsewhere("../weights.bin"), "which is not in its folder; nothing else is opened"),
        (in_a_function("../weights.bin"), "keeps 'inner' in '../weights.bin', which is not in its folder"),
        (in_a_function("weights.bin"), "keeps 'inner' in 'weights.bin', which is absent"),
        (nested(21), "is damaged (its functions, written out, are 3,145,729 nodes, and at most 1,048,576 are read)"),
        (nested(1, itself=True), "is damaged (its functions call each other without end)"),
        (in_a_branch("/etc/passwd"), "keeps 'inner' in '/etc/passwd', which is not in its folder"),
        (in_a_branch("weights.bin", deep=True), "keeps 'inner' in 'weights.bin', which is absent"),
        (in_a_branch("../weights.bin", op="Loop"), "keeps 'inner' in '../weights.bin', which is not in its folder"),
        (without_output(lambda: grouped(*tables("halves"))), "GroupQueryAttention 'attention' has no output"),
        (without_output(lambda: operators("halves", *tables("halves"))), "RotaryEmbedding 'turn_k' has no output"),
        (without_output(lambda: plain("halves", frequencies("halves"))), "Add 'turn_k' has no output"),
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
    made = operators("halves", *tables("halves"))
    made.graph.initializer.extend(
        numpy_helper.from_array(np.array(n), name) for name, n in (("z", 0), ("h", 20_000_000), ("o", 1))
    )
    made.graph.node.append(helper.make_node("Range", ["z", "h", "o"], ["r"]))
    made.graph.node.append(helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT))
    onnx.save(made, tmp_path / "model.onnx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, of which that system counts each
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 10**9


def test_tables_that_name_no_length_are_read(phasor, tmp_path, config):
    """Without one a tensor takes what its sizes need, and not the rest of the file."""
    made = saved_apart(tmp_path / "model.onnx")
    for tensor in made.graph.initializer:
        tensor.external_data.remove(next(entry for entry in tensor.external_data if entry.key == "length"))
    onnx.save(made, tmp_path / "model.onnx")
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0


def test_tables_beside_the_file_are_read(phasor, tmp_path, config):
    saved_apart(tmp_path / "model.onnx")
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0


def test_a_branch_that_keeps_its_tables_beside_the_file(phasor, tmp_path, config):
    """The cosines are the constant of a branch: taken from its file, whatever folder the command runs in."""
    cos, sin = tables("halves")
    made = operators("halves", cos, sin)
    made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "cos"))
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    kept = numpy_helper.from_array(cos, "kept")
    at(kept, "weights.bin")
    identity = helper.make_node("Identity", ["kept"], ["chosen"])
    body = helper.make_graph([identity], "body", [], [info("chosen", TensorProto.FLOAT, None, None)], [kept])
    made.graph.node.insert(0, helper.make_node("If", ["yes"], ["cos"], "if", then_branch=body, else_branch=body))
    onnx.save(made, tmp_path / "model.onnx")
    (tmp_path / "weights.bin").write_bytes(cos.tobytes())
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 0
    (tmp_path / "weights.bin").write_bytes((0.99 * cos).tobytes())
    assert phasor("check", tmp_path / "model.onnx", "--config", config)[0] == 1
