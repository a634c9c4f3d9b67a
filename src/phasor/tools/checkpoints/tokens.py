"""Text as tokens, by the tokenizer that lies beside weights."""

from pathlib import Path
from typing import Any

import torch

from ...support.errors import first_line


def tokens_beside(folder: Path, config: dict[str, Any], text: str, *, special: bool) -> torch.Tensor:
    """The tokens ``[n]`` by the tokenizer in the folder; by bytes for a model of 256 tokens that has none.

    ``special``: with the tokens that the tokenizer puts around a text. No code of the folder is run. Raises
    ``ValueError`` if there is no tokenizer that works.
    """
    if config.get("vocab_size") == 256 and not (folder / "tokenizer.json").exists():
        return torch.tensor(list(text.encode()), dtype=torch.int64)
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        return torch.tensor(tokenizer(text, add_special_tokens=special)["input_ids"], dtype=torch.int64)
    except Exception as error:  # a file that is damaged may raise anything
        raise ValueError(
            f"{folder}: has no tokenizer that works ({first_line(error)}); put tokenizer.json there"
        ) from None
