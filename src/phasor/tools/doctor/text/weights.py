"""Weights under another reading: the model that transformers builds from a config that says it, and its loss."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....models.configs import read_config, write_config
from ...checkpoints.qk_tensors import QKTensors, find_qk_tensors
from ...checkpoints.source import Source
from ...checkpoints.stored import Stored
from ...checkpoints.torch_model import build, relaid
from ...checkpoints.torch_types import WORDS, as_torch
from .readings import WeightReading

AT_ONCE = 4096  # tokens of one forward pass


class LoadedWeights:
    """The tensors of a checkpoint or of a live model, its config, and what both are said to be (``stated``).

    Tensors of a live model are shared, not copied. Raises ``ValueError`` for a model whose config is not read.
    """

    def __init__(self, config: dict[str, Any], state: dict[str, Tensor], source: Source | None = None) -> None:
        self.config, self.state, self.words = config, state, 0  # words: of the logits, once some were formed
        self.found, self.why = self._following(source)
        self.native = self.found.pair_word("native") if self.found else "native"
        word = self.found.pair_word(source.layout) if self.found and source else self.native
        self._laid = {"native": state}
        self.stated = WeightReading(self.found.rotary if self.found else read_config(config), word)

    @classmethod
    def of_source(cls, source: Source) -> "LoadedWeights":
        return cls(source.config, {name: as_torch(tensor) for name, tensor in source.tensors.items()}, source)

    @classmethod
    def of_model(cls, model: nn.Module) -> "LoadedWeights":
        config: Any = model.config
        return cls(config.to_dict(), {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()})

    def _following(self, source: Source | None) -> tuple[QKTensors | None, str]:
        """Which tensors hold q and k; None, and why, where that is not known."""
        tensors: dict[str, Any] = source.tensors if source else {  # type: ignore[assignment]
            name: Stored(WORDS.get(tensor.dtype, "U8"), tuple(tensor.shape), Path(), 0, 0)
            for name, tensor in self.state.items()
        }  # fmt: skip
        try:
            return find_qk_tensors(source.folder if source else Path("model"), self.config, tensors, None), ""
        except ValueError as error:
            return None, str(error)

    def model(self, reading: WeightReading) -> Any:
        """The model in evaluation mode. Raises ``ValueError`` for a reading that its config cannot say."""
        config = write_config(reading.rotary, like=self.config)
        if reading.layout not in ("native", self.native) and _widths(reading) != _widths(self.stated):
            raise ValueError("another width and another layout at once are not tried")
        if reading.layout not in self._laid:  # kept, because models live on until Python looks for cycles
            assert self.found is not None
            self._laid[reading.layout] = relaid(self.found, self.state, reading.layout)
        try:
            return build(config, dict(self._laid[reading.layout]))
        except Exception as error:  # its classes check their own configs, and raise what they like
            told = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
            raise ValueError(f"cannot be run by transformers: {told:.200}") from None

    def losses(self, reading: WeightReading, windows: Tensor) -> Tensor:
        """Loss in nats of every token but the first, float64 ``[n, L]`` of ``[n, L + 1]``; nan is infinite."""
        model, batches = self.model(reading), []
        with torch.no_grad():
            for rows in windows.split(max(1, AT_ONCE // windows.shape[1])):
                logits = model(rows[:, :-1], use_cache=False).logits.float()
                self.words = logits.shape[-1]
                loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
                batches.append(loss.double().view(len(rows), -1))
        return torch.cat(batches).nan_to_num(torch.inf)


def _widths(reading: WeightReading) -> list[int]:
    return [0 if spec is None else spec.rotary_dim for spec in reading.rotary.layers]
