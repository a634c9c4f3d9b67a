"""safetensors' words for the data types that torch has, and what is stored so as a tensor of torch."""

import numpy as np
import torch

from .reordering import load
from .stored import BLOCKS, Tensor

TORCH = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}  # fmt: skip
WORDS = {dtype: word for word, dtype in TORCH.items()}


def as_torch(tensor: Tensor) -> torch.Tensor:
    """A whole tensor; ``ValueError`` for a dtype that torch does not have."""
    if tensor.dtype not in TORCH:
        raise ValueError(f"{tensor.dtype.removeprefix(BLOCKS)} is no dtype of torch")
    data = np.array(load(tensor).reshape(-1))
    return torch.from_numpy(data).view(TORCH[tensor.dtype]).reshape(tensor.shape)
