"""What another implementation would give if it made a certain mistake, in float64."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import reference
from ..rotation import Rotation
from ..spec import RotarySpec
from .files import Vectors
from .kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way of rotating: a spec, and what a spec cannot say because nobody would want it.

    ``cos_factor`` and ``sin_factor`` stand in for the attention factor; ``gain`` multiplies results and tables;
    ``coarse``: where values pass through ``dtype`` (positions, frequencies, angles, tables, results); ``moved``: how
    the channels of the result are permuted (None, "to halves" or "to interleaved"); ``turned``: whether anything turns.
    """

    spec: RotarySpec
    positions: Tensor  # [A, S]
    cos_factor: float
    sin_factor: float
    seq_len: int | None = None
    log_scale: Tensor | None = None
    gain: Tensor | float = 1.0  # or one per token, [S, 1]
    coarse: tuple[str, ...] = ()
    dtype: torch.dtype = torch.bfloat16
    moved: str | None = None
    turned: bool = True

    def replace(self, **changes: object) -> "Case":
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def right(vectors: Vectors, kind: Kind) -> Case:
    """The case without a mistake."""
    assert kind.exact is not None
    positions = vectors.tensors[f"{kind.name}.positions"]
    factor = kind.exact.attention_factor(kind.seq_len)
    return Case(
        spec=kind.exact,
        positions=positions.reshape(kind.exact.axes.count, -1),
        cos_factor=factor,
        sin_factor=factor,
        seq_len=kind.seq_len,
        log_scale=vectors.tensors.get(f"{kind.name}.log_scale"),
    )


def imitate(case: Case, short: str, inputs: dict[str, Tensor]) -> Tensor | None:
    """The tensor called ``short`` (without its kind) as that case gives it; None for one that no case changes."""
    what = short.rpartition(".")[2]
    if what == "inv_freq":
        return _rounded(case.spec.inv_freq(case.seq_len), "frequencies", case)
    if what == "attention_factor":
        return torch.tensor(case.cos_factor, dtype=torch.float64)
    if what.split("_")[0] in ("cos", "sin"):
        cos, sin = tables(case, second=what.endswith("second"))
        return (cos if what.startswith("cos") else sin) * case.gain
    if what.endswith("_out"):
        return _turned(case, what.removesuffix("_out"), inputs)
    return None


def radians(case: Case, *, second: bool = False) -> Tensor:
    """The angle of every pair at every position, float64 ``[S, P]``, before the direction."""
    spec = case.spec
    if second and spec.second is not None:
        spec = spec.replace(axes=spec.second, second=None)
    frequencies = _rounded(spec.inv_freq(case.seq_len), "frequencies", case)
    if case.log_scale is not None:
        frequencies = frequencies * case.log_scale.double().exp()
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float64) * frequencies
    at = _rounded(case.positions.double() * spec.position_scale, "positions", case)
    angles = sum(at[axis].unsqueeze(-1) * shares[axis] for axis in range(len(at)))
    return _rounded(angles, "angles", case)  # type: ignore[arg-type]


def tables(case: Case, *, second: bool = False) -> tuple[Tensor, Tensor]:
    angles = radians(case, second=second)
    cos, sin = angles.cos() * case.cos_factor, angles.sin() * case.sin_factor
    return _rounded(cos, "tables", case), _rounded(-sin if case.spec.reverse else sin, "tables", case)


def _turned(case: Case, target: str, inputs: dict[str, Tensor]) -> Tensor:
    x, spec = inputs[target].double(), case.spec
    if case.turned:
        cos, sin = tables(case)
        second = tables(case, second=True) if spec.second is not None else None
        rotation = Rotation(cos=cos, sin=sin, layout=spec.layout, second=second)
        rotation = rotation.transpose() if target == "output" else rotation
        x = reference.turned(x, rotation.cos, rotation.sin, rotation.layout, second=rotation.second)
    if case.moved:
        halves = dataclasses.replace(spec.layout, interleaved=False, blocks=1, permuted=False)
        interleaved = dataclasses.replace(halves, interleaved=True)
        to_halves = case.moved == "to halves"
        x = x[..., (interleaved.permutation(halves) if to_halves else halves.permutation(interleaved))]
    return _rounded(x * case.gain, "results", case)


def _rounded(x: Tensor, where: str, case: Case) -> Tensor:
    return x.to(case.dtype).double() if where in case.coarse else x
