"""Frequency factors that a GGUF file lost: its metadata speaks of them, and no tensor holds them.

llama.cpp divides the frequencies by the tensors ``rope_freqs`` (Llama 3.1) or ``rope_factors_long`` and
``rope_factors_short`` (LongRoPE), and rotates without a word where they are absent (its ``get_rope_factors``).
"""

from ....models.rows import LLAMA
from .gguf_file import GgufFile
from .plain import LLAMA3

FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
BASE = 500_000.0  # of Llama 3; 3.0 has 8192 positions and no factors, 3.1 to 3.3 have 131072 and factors


def check_long(file: GgufFile, arch: str) -> None:
    """Raises ``ValueError`` for LongRoPE without the tensors that are its factors."""
    lost = [name for name in (LONG, SHORT) if name not in file.tensors]
    if lost and file.metadata.get(f"{arch}.rope.scaling.type") == "longrope":
        raise ValueError(
            f"{file.path}: {lost[0]}: is missing, and {arch}.rope.scaling.type 'longrope' needs it; convert the "
            "original model anew, with a converter that writes it"
        )


def lost_factors(file: GgufFile, arch: str) -> tuple[str, ...]:
    """A sentence where the metadata are those of a stretched Llama 3 and neither a tensor nor a key says its factors.

    The metadata have no word for its scaling: the base and a length beyond the original one are all that speaks of it.
    """
    stated = {key.removeprefix(f"{arch}."): value for key, value in file.metadata.items()}
    length, original = stated.get("context_length", 0), stated.get("rope.scaling.original_context_length")
    if FACTORS in file.tensors or stated.get("rope.scaling.factor") or not isinstance(length, int):
        return ()
    if original is None and arch == LLAMA and stated.get("rope.freq_base") == BASE:
        original = LLAMA3["original_max_position_embeddings"]
    if not isinstance(original, int) or length <= original:
        return ()
    return (
        f"{file.path}: {FACTORS}: is missing, and {arch}.context_length {length} with {arch}.rope.freq_base "
        f"{stated.get('rope.freq_base', 10_000.0):g} is that of a model of {original} positions with llama3 scaling, "
        "whose factors it holds: convert the original model anew, unless it was trained without them",
    )
