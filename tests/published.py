"""Published encodings and how each is built from its file of float64 numbers (shared data, ``encodings/``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phasor import RotarySpec
from phasor.encodings import (
    DAPE,
    CoPE,
    DAPEv2,
    DeBERTa,
    Encoding,
    FoX,
    NoPE,
    PaTH,
    PaTHFoX,
    StickBreaking,
    WindowedRotary,
)

HEADS, LENGTH, HEAD_DIM = 2, 12, 8
File = Mapping[str, Tensor]


@dataclass(frozen=True)
class Published:
    """One row of the table: a file, and what of ours must give its numbers.

    ``learned`` names our parameters, with a view of them as the file has them where that is not a mere shape;
    ``gates`` the entries ``[H, N, ...]`` that stand in the file for what the hidden states decide: they are the hidden
    states of the test. ``out``, ``logits`` and ``weights`` are the entries to give, where the file has several.
    ``given`` is the file as ours takes it; not ``turned`` if ours turns q and k otherwise, to the same logits.
    """

    build: Callable[[File], Encoding]
    file: str
    learned: Mapping[str, str | tuple[str, Callable[[Tensor], Tensor]]] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    causal: bool = True
    out: str = "out"
    logits: str = "logits"
    weights: str = "weights"
    given: Callable[[File], File] = dict
    turned: bool = True

    def encoding(self, file: File) -> Encoding:
        encoding = self.build(file).double()
        with torch.no_grad():
            for name in self.learned:
                weight = self.as_filed(name, self.parameter(encoding, name), file)
                weight.copy_(file["p_" + name])
        return encoding

    def parameter(self, encoding: Encoding, name: str) -> Tensor:
        ours = self.learned[name]
        return encoding.get_parameter(ours if isinstance(ours, str) else ours[0])

    def as_filed(self, name: str, weight: Tensor, file: File) -> Tensor:
        """One of our tensors, a parameter or its gradient, in the file's layout."""
        ours = self.learned.get(name, name)
        return (weight if isinstance(ours, str) else ours[1](weight)).view(file["p_" + name].shape)

    def hidden(self, file: File) -> Tensor | None:
        if not self.gates:
            return None
        columns = [torch.atleast_3d(file[name]) for name in self.gates]
        return torch.cat(columns, -1).transpose(0, 1).flatten(1).unsqueeze(0)


def read(folder: Path, name: str) -> File:
    with np.load(folder / "encodings" / f"{name}.npz") as data:
        file = {key: torch.from_numpy(np.asarray(data[key])) for key in data.files}
    return {"pos": torch.arange(LENGTH), **file}


def fox(file: File) -> FoX:
    encoding = FoX(HEADS, HEADS)
    with torch.no_grad():
        encoding.gate.weight.copy_(torch.eye(HEADS))
    return encoding


class Biased(Encoding):
    """The bias of a file, at positions from 0."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.table = file["B"]

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        return self.table.to(q.dtype)[:, q_positions.unsqueeze(-1), k_positions.unsqueeze(-2)].movedim(0, -3)


class GivenPaTH(PaTH):
    """w and beta as they are in the file."""

    reach = 0

    def gates(self, hidden: Tensor, positions: Tensor) -> Tensor:
        return torch.unflatten(hidden, -1, (HEADS, -1)).transpose(1, 2)


class GivenPaTHFoX(GivenPaTH, PaTHFoX):
    """log f, too."""


def deberta(file: File, **options) -> DeBERTa:
    """The rows of the table are unit vectors, so that the weights of the projections are Kr and Qr."""
    span = file["p_Kr"].shape[1] // 2
    encoding = DeBERTa(HEADS, HEAD_DIM, 2 * span, span, **options)
    with torch.no_grad():
        encoding.table.weight.copy_(torch.eye(2 * span))
    return encoding


def projected(weight: Tensor) -> Tensor:
    """A projection's weight ``[H D, 2 span]`` as its rows of the file ``[H, 2 span, D]``."""
    return weight.view(HEADS, HEAD_DIM, -1).mT


def of_deberta(logits: str, out: str, **options) -> Published:
    learned = {"Kr": ("key.weight", projected), "Qr": ("query.weight", projected)}
    return Published(lambda file: deberta(file, **options), "deberta", learned, causal=False, logits=logits, out=out)


def of_dape(name: str, kind: type[DAPE]) -> Published:
    layers = {"W1": "first.weight", "b1": "first.bias", "W2": "second.weight", "b2": "second.bias"}
    return Published(lambda file: kind(Biased(file), HEADS, width=len(file["p_b1"])), name, layers)


def of_cope(logits: str, out: str, **options) -> Published:
    return Published(
        lambda file: CoPE(HEAD_DIM, file["p_E"].shape[1], **options), "cope", {"E": "table"}, logits=logits, out=out
    )


def of_sticks(weights: str, out: str, **options) -> Published:
    return Published(lambda file: StickBreaking(**options), "stick_breaking", out=out, weights=weights)


GATES = ("w", "beta")
SPEC = RotarySpec(head_dim=HEAD_DIM, interleaved=True)
PUBLISHED = {
    "cope": of_cope("logits", "out"),
    "cope, unscaled": of_cope("logits_listing", "out_listing", scaled=False),
    "dape": of_dape("dape", DAPE),
    "dape v2": of_dape("dape_v2", DAPEv2),
    "deberta": of_deberta("logits_code", "out"),
    "deberta, paper": of_deberta("logits_paper", "out_paper", paper=True),
    "fox": Published(fox, "fox", gates=("gate_logits",)),
    "path": Published(lambda file: GivenPaTH(HEADS, HEAD_DIM, HEADS), "path", gates=GATES),
    "path fox": Published(lambda file: GivenPaTHFoX(HEADS, HEAD_DIM, HEADS), "path_fox", gates=(*GATES, "log_f")),
    "path fox, gate of FoX": Published(
        lambda file: GivenPaTHFoX(HEADS, HEAD_DIM, HEADS, scaled_gate=False), "path_fox",
        gates=(*GATES, "log_f"), logits="logits_gate_unscaled", out="out_gate_unscaled",
    ),
    "stick-breaking": of_sticks("weights", "out"),
    "stick-breaking, with the remainder": of_sticks("none", "out_with_remainder", remainder=True),
    "stick-breaking, itself": of_sticks("weights_self", "out_self", attend_current=True),
    "windowed rotary": Published(
        lambda file: WindowedRotary(SPEC, window=int(file["p_window"])), "interleaved_nope", out="out_sliding"
    ),
    "global": Published(lambda file: NoPE(), "interleaved_nope", out="out_global"),
}  # fmt: skip
