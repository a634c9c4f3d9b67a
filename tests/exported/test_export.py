"""What is exported gives phasor's own results in onnxruntime: as plain nodes, and as the standard operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from phasor import Rotary, RotarySpec, Rotation, apply_rotary, rotate
from phasor.tools.onnx import export
from phasor.tools.onnx.export import _fault

from .configs import PUBLISHED, spec_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

SPECS = {name: spec_of(name) for name in PUBLISHED}
SPECS["float32 angles"] = SPECS["Llama 3.1"].replace(
    angles="float32"
)  # tables in the dtype of q, as the model has them
SPECS["reverse"] = RotarySpec(head_dim=8, reverse=True)
DTYPES = (torch.float32, torch.float16)
FEW = [("Qwen2-VL", torch.float16)], [("YaRN", torch.float16), ("GPT-J", torch.float32)]
ALL = [(name, dtype) for name in SPECS for dtype in DTYPES]


class Rotations(nn.Module):
    """One q of every spec and dtype, turned by one kernel, in one program: exporting takes seconds."""

    def __init__(self, kernel: str, turns: list) -> None:
        super().__init__()
        self.kernel, self.turns = kernel, turns

    def forward(self, heads: list, positions: torch.Tensor, grid: torch.Tensor) -> list:
        return [
            rotate(q, None, at, spec, kernel=self.kernel)[0] for q, at, spec in each(self.turns, heads, positions, grid)
        ]


def each(turns: list, heads: list, positions: torch.Tensor, grid: torch.Tensor) -> Iterator:
    for (name, _), q in zip(turns, heads, strict=True):
        yield q, grid if SPECS[name].axes.count == 3 else positions, SPECS[name]


def example(turns: list, batch: int, seq: int, far: int) -> tuple:
    """Heads of every spec, and positions up to ``far``, different in every row."""
    heads = [torch.randn(batch, 2, seq, SPECS[name].head_dim).to(dtype) for name, dtype in turns]
    return heads, torch.randint(0, far, (batch, seq)), torch.randint(0, far, (3, batch, seq))


def exported(folder: Path, kernel: str, opset: int, turns: list) -> Path:
    batch, seq = (torch.export.Dim(name) for name in ("batch", "seq"))
    shapes = ([{0: batch, 2: seq}] * len(turns), {0: batch, 1: seq}, {1: batch, 2: seq})
    given = example(turns, 2, 5, 100)
    return export(Rotations(kernel, turns), given, folder / "a.onnx", dynamic_shapes=shapes, opset_version=opset)


def ran(path: Path, given: tuple) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {i.name: x.numpy() for i, x in zip(session.get_inputs(), (*given[0], *given[1:]), strict=False)}
    return [torch.from_numpy(y) for y in session.run(None, inputs)]


@pytest.mark.parametrize(
    "kernel, opset, turns",
    [
        pytest.param("reference", 18, FEW[0], marks=pytest.mark.slow),  # test_check_exports has such a file
        ("onnx", 23, FEW[1]),
        *(pytest.param(kernel, opset, ALL, marks=pytest.mark.slow) for kernel, opset in
          [("reference", 18), ("reference", 23), ("onnx", 23), ("onnx", 25)]),
    ],
)  # fmt: skip
def test_onnxruntime_has_phasors_results(tmp_path, kernel, opset, turns):
    path = exported(tmp_path, kernel, opset, turns)
    model = onnx.load(path)
    assert model.opset_import[0].version == opset
    nodes = [node for node in model.graph.node if node.op_type == "RotaryEmbedding"]
    assert len(nodes) == (len(turns) if kernel == "onnx" else 0)
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.value_info, *model.graph.input)}
    for node, (name, dtype) in zip(nodes, turns, strict=False):
        # widened around the operator, whose tables have the type of what it turns, unless the spec rounds its tables
        half = dtype == torch.float16 and name == "float32 angles"
        wanted = onnx.TensorProto.FLOAT16 if half else onnx.TensorProto.FLOAT
        assert [kinds[name] for name in node.input if name in kinds] == [wanted] * len(node.input)
    for batch, seq in ((1, 1), (3, 17)):
        far = 100 if ("float32 angles", torch.float32) in turns else 2**31  # exact phases hold in int64 nodes too
        given = example(turns, batch, seq, far)
        for (name, dtype), y, (q, at, spec) in zip(turns, ran(path, given), each(turns, *given), strict=True):
            assert y.dtype == dtype
            # exact: sums of two products of numbers below 5 in another order, rounded once; else angles up to 100
            # radians whose cos may be off by a step of 7.6e-6, and in half precision every product is rounded
            rounded = name == "float32 angles"
            tolerance = {"rtol": 2**-10, "atol": 2**-6 if rounded else 4e-6} if dtype == torch.float16 else {
                "rtol": 1e-6, "atol": 8e-5 if rounded else 4e-6}  # fmt: skip
            torch.testing.assert_close(y, rotate(q, None, at, spec)[0], **tolerance, msg=lambda m, n=name: f"{n}: {m}")


SPEC = RotarySpec(head_dim=8, rotary_dim=4)
AT = Rotation.at(SPEC, torch.arange(5))


@pytest.mark.parametrize(
    "shape, more",
    [
        ((2, 3, 5, 8), {}),
        ((3, 5, 8), {}),
        ((2, 5, 3, 8), {"tensor_format": "bshd"}),
        ((2, 5, 24), {"tensor_format": "bshd", "num_heads": 3}),
        ((5, 2, 3, 8), {"tensor_format": "sbhd"}),
        ((5, 3, 8), {"tensor_format": "thd"}),
    ],
)
@pytest.mark.parametrize("interleaved", [False, True])
def test_every_order_of_axes_by_torchs_own_meaning_of_the_operator(shape, more, interleaved):
    rotation = Rotation.at(SPEC.replace(interleaved=interleaved), torch.arange(5))
    x = torch.randn(shape)
    got = apply_rotary(x, rotation, kernel="onnx", **more)
    assert got.is_contiguous()
    torch.testing.assert_close(got, apply_rotary(x, rotation, **more), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "rotation, x, says",
    [
        (Rotation.at(SPEC.replace(trailing=True), torch.arange(5)), torch.ones(1, 1, 5, 8), "the last 4 rotate"),
        (Rotation.at(RotarySpec(head_dim=8, blocks=2), torch.arange(5)), torch.ones(1, 1, 5, 8), "in each of 2 blocks"),
        (
            Rotation.at(RotarySpec(head_dim=8, interleaved=True, permuted=True), torch.arange(5)),
            torch.ones(1, 1, 5, 8),
            "interleaved, written as halves",
        ),
        (
            Rotation.from_frequencies(torch.ones(1, 5), torch.ones(2, 1, 4)),
            torch.ones(1, 2, 5, 8),
            "one set of tables for all heads",
        ),
        (AT, torch.ones(1, 2, 3, 5, 8), "one batch dimension"),
        (AT, torch.ones(1, 3, 5, 8, dtype=torch.float64), "no float64"),
    ],
)
def test_what_the_operator_cannot_express_is_refused(rotation, x, says):
    with pytest.raises(ValueError, match=f"kernel='onnx' cannot rotate these: .*{says}.*; use kernel='reference'"):
        apply_rotary(x, rotation, kernel="onnx")


def test_it_is_never_taken_unasked():
    x = torch.randn(1, 2, 5, 8)
    assert torch.equal(apply_rotary(x, AT), apply_rotary(x, AT, kernel="reference"))


@pytest.mark.parametrize("opset", [26, pytest.param(18, marks=pytest.mark.slow)])
def test_an_opset_that_torch_does_not_write_is_an_error_and_no_file(tmp_path, opset):
    given = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.arange(5)
    with pytest.raises(
        ValueError, match=rf"opset_version must be one that torch can write for these nodes, got {opset}: "
    ):
        export(Rotary(SPEC, kernel="onnx"), given, tmp_path / "a.onnx", opset_version=opset)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    from phasor.tools.onnx.export import _save

    class Full:
        def save(self, file):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"cannot write \(No space left on device\); .* untouched: '.*/a.onnx'"):
        _save(Full(), tmp_path / "scratch", tmp_path / "a.onnx")


def test_a_file_with_nodes_that_its_opset_has_not_is_at_fault(tmp_path):
    """RotaryEmbedding came with opset 23; Neg has been there all the time."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, 3, 4]) for name in "xy")
    for kind, opset, fault in (("Neg", 18, ""), ("Neg", 20, "opset 18"), ("RotaryEmbedding", 18, "RotaryEmbedding")):
        node = onnx.helper.make_node(kind, ["x"] if kind == "Neg" else ["x", "x", "x"], ["y"])
        graph = onnx.helper.make_graph([node], "of one node", [x], [y])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
        onnx.save(model, tmp_path / "a.onnx")
        found = _fault(onnx, tmp_path / "a.onnx", opset)
        assert fault in found and bool(found) == bool(fault)


def test_bad_arguments_of_export(tmp_path):
    given = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.arange(5)
    with pytest.raises(ValueError, match="path must be a file in a folder that exists, got "):
        export(Rotary(SPEC), given, tmp_path / "none" / "a.onnx")
    with pytest.raises(ValueError, match=r"path must be an ordinary file with a path in UTF-8.*; name another"):
        export(Rotary(SPEC), given, tmp_path / "x\udcff.onnx")
    with open(tmp_path / "out", "wb") as out, pytest.raises(ValueError, match="path must be an ordinary file"):
        export(Rotary(SPEC), given, f"/proc/self/fd/{out.fileno()}")  # what is open, as /dev/stdout, has no place
    with pytest.raises(ValueError, match="opset_version must be an integer of at least 18, got 17"):
        export(Rotary(SPEC), given, tmp_path / "a.onnx", opset_version=17)


def test_a_file_is_replaced_as_others_are(tmp_path, monkeypatch):
    """Through a link, with its mode, and with nothing beside it while torch is at work, which may be stopped."""
    there, link = tmp_path / "there", tmp_path / "link"
    there.touch(0o600)
    link.symlink_to(there)
    before, made = sorted(tmp_path.iterdir()), torch.onnx.export

    def look(*args, **options):
        assert sorted(tmp_path.iterdir()) == before
        return made(*args, **options)

    monkeypatch.setattr("torch.onnx.export", look)
    export(nn.ReLU(), torch.randn(3), link)
    assert sorted(tmp_path.iterdir()) == before and link.is_symlink()
    assert there.stat().st_mode & 0o777 == 0o600 and onnx.load(there).graph.node
