"""ONNX graphs of one layer that turns q and k, by hand, as exporters write them, with one thing wrong if asked."""

import math
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEADS, HEAD, ROWS = 2, 16, 512
SIZES = {"hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1, "max_position_embeddings": ROWS}
CONFIGS: dict[str, dict[str, Any]] = {
    "halves": {"model_type": "llama", **SIZES, "rope_theta": 500000.0},
    "partial": {"model_type": "gpt_neox", **SIZES, "rotary_pct": 0.5, "rotary_emb_base": 10000},
    "interleaved": {"model_type": "cohere", **SIZES, "rope_theta": 10000.0},
    "linear": {
        "model_type": "llama", **SIZES, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "yarn": {
        "model_type": "qwen2", **SIZES, "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    },
}  # fmt: skip
WIDTHS = {name: HEAD // 2 if name == "partial" else HEAD for name in CONFIGS}
FACTOR = 0.1 * math.log(4.0) + 1  # YaRN's, arXiv:2309.00071, equation 22


def frequencies(name: str, base: float | None = None, scaled: bool = True) -> np.ndarray:
    """Radians per position of each pair, by the closed formulas.

    YaRN's ramp ends at pair ceil(16 ln(128 / 2 pi) / (2 ln 10000)) = 3, and begins below 0.
    """
    base = base or (500000.0 if name == "halves" else 10000.0)
    width = WIDTHS[name]
    ladder = np.array([base ** (-2 * i / width) for i in range(width // 2)])
    ramp = np.clip(np.arange(width // 2) / 3, 0, 1) if name == "yarn" else 1.0
    return ladder * (1 - ramp) + ladder / 4 * ramp if name in ("linear", "yarn") and scaled else ladder


def tables(name: str, rows: int = ROWS, factor: float | None = None, **wrong: Any) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(rows)[:, None] * frequencies(name, **wrong)
    scale = (FACTOR if name == "yarn" else 1.0) if factor is None else factor
    return (scale * np.cos(angles)).astype(np.float32), (scale * np.sin(angles)).astype(np.float32)


def info(name: str, kind: int, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], constants: dict[str, np.ndarray], extra: list[Any] = (), half: bool = False) -> Any:
    """q and k ``[batch, heads, seq, 16]`` and positions go in, both come out turned."""
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    heads = [info(n, kind, "batch", HEADS, "seq", HEAD) for n in ("q", "k")]
    inputs = [*heads, info("positions", TensorProto.INT64, "batch", "seq"), *extra]
    outputs = [info(f"{n}_rotated", kind, "batch", HEADS, "seq", HEAD) for n in ("q", "k")]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "layer", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def operators(name: str, cos: np.ndarray, sin: np.ndarray, domain: str = "", shift: int = 0, **marks: Any) -> Any:
    """A RotaryEmbedding for each, by tables and positions."""
    nodes, ids = [], "positions"
    named = {"domain": domain, "interleaved": int(name == "interleaved")}
    if shift:
        nodes, ids = [helper.make_node("Add", ["positions", "shift"], ["shifted"])], "shifted"
    if name == "partial":
        named |= {"rotary_embedding_dim": WIDTHS[name], "num_heads": HEADS}
    for x in ("q", "k"):
        order = [x, ids, "cos", "sin"] if domain else [x, "cos", "sin", ids]
        nodes.append(helper.make_node("RotaryEmbedding", order, [f"{x}_rotated"], f"turn_{x}", **named | marks))
    constants = {"cos": cos, "sin": sin} | ({"shift": np.array(shift)} if shift else {})
    return model(nodes, constants, half=cos.dtype == np.float16)


def plain(name: str, inv_freq: np.ndarray, factor: float = 1.0, shift: int = 0, wrong: str = "") -> Any:
    """The nodes of transformers' code: a product of frequencies and positions, cos and sin, rotate_half."""
    n, width = helper.make_node, WIDTHS[name]
    interleaved = (name == "interleaved") != (wrong == "layout")
    repeated = np.repeat(inv_freq, 2) if interleaved else np.tile(inv_freq, 2)
    numbers = {"zero": 0, "one": 1, "two": 2, "half": width // 2, "width": width, "end": HEAD, "axis": -1}
    constants = {
        **{name: np.array([number]) for name, number in numbers.items()},
        "frequencies": repeated.astype(np.float32), "factor": np.float32(factor), "shift": np.array(shift),
        "pairs": np.array([0, 0, 0, -1, 2]), "flat": np.array([0, 0, 0, -1]),
    }  # fmt: skip
    nodes = [
        n("Add", ["positions", "shift"], ["at"]),
        n("Cast", ["at"], ["real"], to=TensorProto.FLOAT),
        n("Unsqueeze", ["real", "axis"], ["column"]),
        n("Mul", ["column", "frequencies"], ["angles"]),
    ]
    for table in ("Cos", "Sin"):
        nodes += [
            n(table, ["angles"], [f"{table}_of"]),
            n("Mul", [f"{table}_of", "factor"], [f"{table}_times"]),
            n("Unsqueeze", [f"{table}_times", "one"], [table]),
        ]
    turn = _interleaved if interleaved else _halves
    for x in ("q", "k"):
        if width == HEAD:
            nodes += turn(x, f"{x}_rotated", wrong == "direction")
            for node in nodes if wrong == "lost_minus" else ():
                node.op_type = "Identity" if node.op_type == "Neg" else node.op_type
        else:
            nodes += [n("Slice", [x, "zero", "width", "axis"], [f"{x}_rot"])]
            nodes += [n("Slice", [x, "width", "end", "axis"], [f"{x}_pass"])]
            nodes += turn(f"{x}_rot", f"{x}_part", wrong == "direction")
            nodes += [n("Concat", [f"{x}_part", f"{x}_pass"], [f"{x}_rotated"], axis=-1)]
    return model(nodes, constants)


def nodes(name: str = "halves", factor: float | None = None, shift: int = 0, wrong: str = "", **off: Any) -> Any:
    """``plain`` with the frequencies and the factor of its config, unless they are to be others."""
    factor = (FACTOR if name == "yarn" else 1.0) if factor is None else factor
    return plain(name, frequencies(name, **off), factor, shift, wrong)


def _halves(x: str, y: str, backwards: bool) -> list[Any]:
    n = helper.make_node
    cut = [n("Slice", [x, "zero", "half", "axis"], [f"{x}_a"]), n("Slice", [x, "half", "width", "axis"], [f"{x}_b"])]
    return [*cut, *_joined(x, backwards), *_summed(x, f"{x}_joined", y)]


def _interleaved(x: str, y: str, backwards: bool) -> list[Any]:
    n, p = helper.make_node, f"{x}_pairs"
    cut = [n("Slice", [p, "zero", "one", "axis"], [f"{x}_a"]), n("Slice", [p, "one", "two", "axis"], [f"{x}_b"])]
    flat = n("Reshape", [f"{x}_joined", "flat"], [f"{x}_flat"])
    return [n("Reshape", [x, "pairs"], [p]), *cut, *_joined(x, backwards), flat, *_summed(x, f"{x}_flat", y)]


def _joined(x: str, backwards: bool) -> list[Any]:
    """``(-b, a)``, or ``(b, -a)``."""
    a, b = (f"{x}_b", f"{x}_a") if backwards else (f"{x}_a", f"{x}_b")
    parts = [a, f"{x}_minus"] if backwards else [f"{x}_minus", a]
    return [
        helper.make_node("Neg", [b], [f"{x}_minus"]),
        helper.make_node("Concat", parts, [f"{x}_joined"], axis=-1),
    ]


def _summed(x: str, half: str, y: str) -> list[Any]:
    n = helper.make_node
    products = [n("Mul", [x, "Cos"], [f"{x}_c"]), n("Mul", [half, "Sin"], [f"{x}_s"])]
    return [*products, n("Add", [f"{x}_c", f"{x}_s"], [y], f"turn_{x}")]


def joined(made: Any, before: Any = (), after: Any = (), read: Any = None, **constants: Any) -> Any:
    """The same graph with more nodes and constants, of which its own nodes ``read`` some in the place of others."""
    own = list(made.graph.node)
    for node in own:
        node.input[:] = [(read or {}).get(name, name) for name in node.input]
    del made.graph.node[:]
    made.graph.node.extend([*before, *own, *after])
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items())
    return made


def grouped(cos: np.ndarray, sin: np.ndarray, packed: bool = False, **marks: Any) -> Any:
    """onnxruntime's GroupQueryAttention, which turns q and k itself; ``packed``: out of one tensor, with v behind."""
    parts = {"query": 3} if packed else {"query": 1, "key": 1, "value": 1}
    flat = [info(x, TensorProto.FLOAT, "batch", "seq", n * HEADS * HEAD) for x, n in parts.items()]
    lengths = [info("seqlens_k", TensorProto.INT32, "batch"), info("total", TensorProto.INT32, 1)]
    names = [*(parts if len(parts) == 3 else ("query", "", "")), "", "", "seqlens_k", "total", "cos", "sin"]
    about = {"num_heads": HEADS, "kv_num_heads": HEADS, "do_rotary": 1, "rotary_interleaved": 0, **marks}
    node = helper.make_node("GroupQueryAttention", names, ["out"], "attention", domain="com.microsoft", **about)
    tensors = [numpy_helper.from_array(cos, "cos"), numpy_helper.from_array(sin, "sin")]
    graph = helper.make_graph(
        [node], "layer", [*flat, *lengths], [info("out", TensorProto.FLOAT, "batch", "seq", HEADS * HEAD)], tensors
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_pairs() -> Any:
    """Heads cut into ``[pairs, 2]``, both members turned apart, joined and flattened, as Meta's Llama does."""
    n, constants = helper.make_node, {"pairs": [0, 0, 0, -1, 2], "flat": [0, 0, 0, -1], "first": 0, "second": 1}
    cos, sin = tables("interleaved")
    nodes = [n("Gather", [t, "positions"], [f"{t}_rows"]) for t in ("cos", "sin")]
    nodes += [n("Unsqueeze", [f"{t}_rows", "one"], [f"{t}_of"]) for t in ("cos", "sin")]
    for x in ("q", "k"):
        nodes += [n("Reshape", [x, "pairs"], [f"{x}_pairs"])]
        nodes += [n("Gather", [f"{x}_pairs", m], [f"{x}_{m}"], axis=-1) for m in ("first", "second")]
        nodes += [
            n("Mul", [f"{x}_{m}", f"{t}_of"], [f"{x}_{m}_{t}"]) for m in ("first", "second") for t in ("cos", "sin")
        ]
        nodes += [n("Sub", [f"{x}_first_cos", f"{x}_second_sin"], [f"{x}_a"], f"turn_{x}")]
        nodes += [n("Add", [f"{x}_first_sin", f"{x}_second_cos"], [f"{x}_b"])]
        nodes += [n("Unsqueeze", [f"{x}_{part}", "last"], [f"{x}_{part}_1"]) for part in ("a", "b")]
        nodes += [n("Concat", [f"{x}_a_1", f"{x}_b_1"], [f"{x}_ab"], axis=-1)]
        nodes += [n("Reshape", [f"{x}_ab", "flat"], [f"{x}_rotated"])]
    arrays = {name: np.array(value) for name, value in constants.items()}
    return model(nodes, {"cos": cos, "sin": sin, "one": np.array([1]), "last": np.array([-1]), **arrays})


def counted(of_positions: list[Any], inputs: list[Any], constants: dict[str, Any]) -> Any:
    """``operators`` for halves, whose positions ``[batch, seq]`` are formed by nodes, from inputs beside q and k."""
    made = operators("halves", *tables("halves"))
    given = [*made.graph.input[:2], *inputs]
    del made.graph.input[:]
    made.graph.input.extend(given)
    nodes = [*of_positions, *made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), n) for n, v in constants.items())
    return made


def projected() -> Any:
    """q and k cut out of one product ``[batch, seq, 2 * 32]``, by numbers that nodes form of its shape."""
    n, made = helper.make_node, operators("halves", *tables("halves"))
    turned = list(made.graph.node)
    nodes = [n("MatMul", ["x", "weight"], ["both"]), n("Shape", ["both"], ["all"])]
    nodes += [n("Gather", ["all", "axis"], ["wide"]), n("Cast", ["wide"], ["real"], to=TensorProto.FLOAT)]
    nodes += [n("Div", ["real", "parts"], ["half"]), n("Cast", ["half"], ["width"], to=TensorProto.INT64)]
    nodes += [n("Div", ["width", "head"], ["heads"]), n("Slice", ["all", "start", "axis"], ["some"])]
    nodes += [n("Max", ["some", "start"], ["lead"])]
    nodes += [n("Concat", ["lead", "heads", "head"], ["cut"], axis=0)]
    for x in ("q", "k"):
        ends = ["start", "width"] if x == "q" else ["width", "wide"]
        nodes += [n("Slice", ["both", *ends, "axis"], [f"{x}_flat"])]
        nodes += [n("Reshape", [f"{x}_flat", "cut"], [f"{x}_rows"])]
        nodes += [n("Transpose", [f"{x}_rows"], [x], perm=[0, 2, 1, 3])]
    inputs = [info("x", TensorProto.FLOAT, "batch", "seq", 8), info("positions", TensorProto.INT64, "batch", "seq")]
    constants = {"axis": np.array([2]), "parts": np.float32([2]), "head": np.array([HEAD]), "start": np.array([0])}
    constants["weight"] = np.zeros((8, 64), np.float32)
    tensors = [*made.graph.initializer, *(numpy_helper.from_array(v, name) for name, v in constants.items())]
    outputs = [info(f"{x}_rotated", TensorProto.FLOAT, None, None, None, None) for x in ("q", "k")]
    graph = helper.make_graph([*nodes, *turned], "layer", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=made.opset_import, ir_version=10)


def attending(made: Any, before: list[Any] = (), after: list[Any] = (), q: str = "q_rotated") -> Any:
    """The q and k of ``made``, projected from x ``[batch, seq, 32]`` by weights that are no numbers, and attention.

    ``before`` and ``after``: more nodes; ``q``: what is multiplied with the keys. Positions go in as they did.
    """
    n, nodes = helper.make_node, []
    for x in ("q", "k", "v"):
        nodes += [
            n("MatMul", ["x", f"weight_{x}"], [f"{x}_flat"]),
            n("Reshape", [f"{x}_flat", "heads"], [f"{x}_split"]),
        ]
        nodes += [n("Transpose", [f"{x}_split"], [x], perm=[0, 2, 1, 3])]
    nodes += [*before, *made.graph.node, *after, n("Transpose", ["k_rotated"], ["k_turned"], perm=[0, 1, 3, 2])]
    nodes += [n("MatMul", [q, "k_turned"], ["scores"]), n("Mul", ["scores", "scale"], ["scaled"])]
    nodes += [n("Softmax", ["scaled"], ["weights"], axis=-1), n("MatMul", ["weights", "v"], ["out"])]
    constants = {f"weight_{x}": np.full((32, 32), np.nan, np.float32) for x in ("q", "k", "v")}
    constants |= {"heads": np.array([0, 0, HEADS, HEAD]), "scale": np.float32(0.25)}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    inputs = [info("x", TensorProto.FLOAT, "batch", "seq", 32), *made.graph.input[2:]]
    outputs = [info("out", TensorProto.FLOAT, "batch", HEADS, "seq", HEAD)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, [*made.graph.initializer, *tensors])
    opsets = [*made.opset_import, helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
