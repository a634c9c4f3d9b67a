"""Golden vectors made in memory, and what golden's judging says of tables and of rotated heads by them."""

from torch import Tensor

from ....models.reading.model import ModelRotary
from ....rotary.spec import RotarySpec
from ...golden.check import findings_of
from ...golden.folder import describe
from ...golden.layer_kinds import Kind
from ...golden.report import TensorFinding
from ...golden.tensors import tensors_of
from ...golden.vectors import Vectors

NAME = "layer"
TARGETS = ("q", "k")


def golden(model: ModelRotary, spec: RotarySpec, positions: Tensor, heads: dict[str, Tensor] | None = None) -> Vectors:
    """The vectors of one spec at ``positions`` (``[S]``, or one row per axis); ``heads`` are given instead of noise."""
    seq_len = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    kind = Kind(name=NAME, layers=(0,), layer_type=NAME, spec=spec, own_angles=model.own_angles, seq_len=seq_len)
    arrays = {f"{NAME}.{n}": g for n, g in tensors_of(kind, positions, TARGETS, 0, heads).items()}
    data = {**describe(model, [kind], arrays, 0), "targets": list(TARGETS)}
    return Vectors({NAME: kind}, {name: g.tensor for name, g in arrays.items()}, data)


def judged(vectors: Vectors, tensors: dict[str, Tensor]) -> TensorFinding | None:
    """The fault that golden's judging finds in tensors by their short names; None where all are right."""
    findings = findings_of(vectors, vectors.kinds[NAME], {f"{NAME}.{name}": tensor for name, tensor in tensors.items()})
    return next((f for f in findings if f.verdict == "wrong"), None)
