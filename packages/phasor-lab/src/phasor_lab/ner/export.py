"""The scores of a model as ONNX, for batches and lengths of any size."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phasor.tools.onnx.export import export as write

from .model import SpanModel
from .words import ids_of_a_token

INPUTS = {
    "ids": "int64 [batch, length]: the tokens, as tokenizer.json of the model's folder gives them; of a model on words "
    "[batch, length, features]: for each word the rows of its features, CRC-32 of 'name=value' modulo the rows",
    "mask": "int64 [batch, length]: 1 for tokens, 0 for padding, which is last",
    "content": "int64 [batch, length]: 1 for tokens that stand for characters, 0 for special ones and padding",
}
OUTPUTS = {
    "scores": "float32 [batch, labels, length, length]: of the span from a token to a token, both inside; its "
    "probability is sigmoid(2 s), above a half where s is above 0; -inf where there is no span",
}
OPSET = 20  # the first with Gelu


def export(model: SpanModel, path: str | Path) -> Path:
    """Write ``path``: int64 ``ids``, ``mask``, ``content`` ``[batch, length]`` -> float32 ``scores``.

    The ``ids`` of a model on words are ``[batch, length, features]``: `phasor_lab.ner.words.hashed` of each word.
    ``mask`` is 1 for tokens and 0 for padding, which is last; ``content`` is 0 for special tokens too. The scores are
    those of `SpanModel`, ``[batch, labels, length, length]``, -inf where there is no span. The file says so of each
    input and output, and its metadata hold ``labels`` (a JSON list, in the order of the scores), ``max_length`` and
    ``overlap`` (of the windows that longer texts are cut into). Needs onnx and onnxscript.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # three tensors: one that is given twice would be one input
    ids, mask, content = (torch.ones(2, 5, dtype=torch.int64) for _ in INPUTS)
    if (width := ids_of_a_token(model.config)) is not None:
        ids = torch.ones(2, 5, width, dtype=torch.int64)
    example = (ids, mask, content)
    dynamic = {0: "batch", 1: "length"}
    return write(
        _Exported(model).eval(),
        example,
        path,
        dynamic_shapes=(dynamic,) * 3,
        input_names=list(INPUTS),
        output_names=list(OUTPUTS),
        opset_version=OPSET,
        custom_translation_table={torch.ops.phasor.lstm.default: _onnx_lstm},
        documentation=INPUTS | OUTPUTS,
        metadata={name: json.dumps(getattr(model.config, name)) for name in ("labels", "max_length", "overlap")},
    )


class _Exported(nn.Module):
    def __init__(self, model: SpanModel) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu()
        for module in list(self.model.encoder.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.LSTM):
                    setattr(module, name, _Lstm(child))

    def forward(self, ids: Tensor, mask: Tensor, content: Tensor) -> Tensor:
        scores: Tensor = self.model(ids, mask != 0, content != 0)
        return scores


# torch.export walks through nn.LSTM step by step and so fixes its length: here it is one operation, as it is in ONNX.
@torch.library.custom_op("phasor::lstm", mutates_args=())
def _lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor) -> Tensor:
    """``[B, S, I] -> [B, S, H]`` with weights as ONNX has them."""
    raise NotImplementedError("only to be exported")


@_lstm.register_fake
def _(x: Tensor, w: Tensor, r: Tensor, b: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], r.shape[-1])


def _onnx_lstm(x: Any, w: Any, r: Any, b: Any) -> Any:
    from onnxscript import opset20 as op

    y, _, _ = op.LSTM(op.Transpose(x, perm=[1, 0, 2]), w, r, b, hidden_size=r.shape[-1])  # [S, 1, B, H]
    direction: Any = op.Constant(value_ints=[1])
    return op.Transpose(op.Squeeze(y, direction), perm=[1, 0, 2])


class _Lstm(nn.Module):
    """One layer, one direction. torch's gates are input, forget, cell, output; ONNX's input, output, forget, cell."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        for short, name in (("w", "weight_ih_l0"), ("r", "weight_hh_l0")):
            self.register_buffer(short, self._gates(lstm, name).unsqueeze(0))
        biases = [self._gates(lstm, name) for name in ("bias_ih_l0", "bias_hh_l0")]
        self.register_buffer("b", torch.cat(biases).unsqueeze(0))

    @staticmethod
    def _gates(lstm: nn.LSTM, name: str) -> Tensor:
        i, f, c, o = getattr(lstm, name).detach().chunk(4)
        return torch.cat((i, o, f, c))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.phasor.lstm(x, self.w, self.r, self.b)
        return y
