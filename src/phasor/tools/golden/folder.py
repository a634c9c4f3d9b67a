"""The folder of golden vectors: one safetensors file, one JSON that describes it, one README."""

import dataclasses
import json
import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...models.configs import ModelRotary
from ...models.rotary_of import rotary_of
from ...support.checks import whole
from ...support.plain_text import printable
from ...support.whole_files import check_folder_target, whole_folder, write_together
from .instead import goldens_instead
from .layer_kinds import Kind, Positions, kinds_of, positions_of
from .moves import moved_tensors, moving_kinds
from .readme import readme
from .tensors import GRADIENTS, Golden, channels, tensors_of
from .vectors import DESCRIPTION, FORMAT, VECTORS, as_bytes, sealed

LICENCE = "Apache-2.0"
RULE = "|got - expected| <= absolute + relative * |expected| + per_radian * |angle of the pair, in radians|"


def write(
    config_or_model: str | os.PathLike[str] | dict[str, Any] | ModelRotary | Any,
    folder: str | os.PathLike[str],
    *,
    part: str | None = None,
    positions: Positions | None = None,
    moved: bool = False,
    seed: int = 0,
) -> Path:
    """Write golden vectors for the rotary encoding of a model into ``folder``; returns the folder.

    ``config_or_model`` is what `phasor.read_config` takes, or its result; a torch model, which is observed where its
    config is not read, or an `Observation`; ``part`` as there. For every kind of layer: frequencies, cos and sin,
    inputs and results, and the gradients that q and k get, in float32 and bfloat16, exact and as the model's own code
    computes. Where nothing rotates: what is added to logits at each distance, and to each token, as observed; of a
    config on a small model that transformers builds of it, with the random tables of what it learns.
    ``positions``: those to test (default: 0 to 7, around the trained and the declared length, and far beyond), or a row
    of them for each axis, as the tokens of a picture stand;
    ``moved``: also keys that a cache moves from one position to another, kinds ``NAME_moved`` (`phasor.reposition`);
    ``seed`` of the made-up inputs. The same arguments give the same bytes. The folder appears whole or not at all;
    one that holds older vectors is replaced. Needs safetensors.

    Raises ``ValueError`` for a config that cannot be read or does not rotate, for positions that are not distinct
    integers within 2**31, and for a folder that holds anything else.

    >>> import tempfile
    >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sorted(path.name for path in write(config, f"{place}/golden", positions=[0, 1]).iterdir())
    ['README.md', 'vectors.json', 'vectors.safetensors']
    """
    whole("seed", seed, at_least=0)
    folder = Path(folder)
    _check_folder(folder)
    goldens: dict[str, Golden] = {}
    try:
        model = rotary_of(config_or_model, part)
        kinds = kinds_of(model)
    except ValueError as refused:
        if part is not None:
            raise
        model, kinds, goldens = goldens_instead(config_or_model, refused)
        if moved or positions is not None:
            asked = "moved" if moved else "positions"
            raise ValueError(f"{asked} is about a rotation, and {model.model_type} has none: leave it out") from refused
    for kind in kinds if not goldens else ():
        targets = (*model.targets, *(GRADIENTS[t] for t in model.targets if t in GRADIENTS))
        tensors = tensors_of(kind, positions_of(kind, model, positions), targets, seed)
        goldens |= {f"{kind.name}.{name}": golden for name, golden in tensors.items()}
    for kind in moving_kinds(kinds) if moved else ():
        kinds.append(kind)
        tensors = moved_tensors(kind, positions_of(kind, model, positions), seed)
        goldens |= {f"{kind.name}.{name}": golden for name, golden in tensors.items()}
    vectors = as_bytes({name: golden.tensor for name, golden in goldens.items()})
    described = sealed(describe(model, kinds, goldens, seed), vectors)
    files = {
        VECTORS: vectors,
        DESCRIPTION: _json(described).encode(),
        "README.md": printable(readme(described)).encode(),
    }
    with whole_folder(folder) as scratch:
        write_together({scratch / name: data for name, data in files.items()})
    return folder


def describe(model: ModelRotary, kinds: list[Kind], goldens: dict[str, Golden], seed: int) -> dict[str, Any]:
    """The JSON: the model, its kinds of layers, and every tensor."""
    fields = ("model_type", "part", "max_position", "softmax_factor", "prefix_tokens", "suffix_tokens", "heads")
    return {
        "format": FORMAT,
        "phasor": _version(),
        "licence": LICENCE,
        **{name: getattr(model, name) for name in fields},
        "targets": list(model.targets),
        "notes": list(model.notes),
        "layers": len(model.layers),
        "layers_without_rotation": [i for i, spec in enumerate(model.layers) if spec is None],
        "seed": seed,
        "tolerance_rule": RULE,
        "kinds": [_about(kind, goldens) for kind in kinds],
        "tensors": {name: _entry(name, golden, kinds) for name, golden in goldens.items()},
    }


def _version() -> str:
    try:
        return version("phasor-rope")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


def _about(kind: Kind, goldens: dict[str, Golden]) -> dict[str, Any]:
    spec = kind.model
    return {
        **kind.to_dict(),
        "describe": "no rotation" if kind.exact is None else kind.exact.describe(),
        "describe_model": "no rotation" if spec is None else spec.describe(),
        "positions": goldens[f"{kind.name}.positions"].tensor.tolist(),
        "attention_factor": 1.0 if spec is None else spec.attention_factor(kind.seq_len),
        "pairs": 0 if spec is None else spec.pairs,
        "channels": None if spec is None else channels(spec),
    }


def _entry(name: str, golden: Golden, kinds: list[Kind]) -> dict[str, Any]:
    kind = next(k for k in kinds if name.startswith(f"{k.name}."))
    return {
        "kind": kind.name,
        "layers": list(kind.layers),
        "shape": list(golden.tensor.shape),
        "dtype": str(golden.tensor.dtype).removeprefix("torch."),
        "stored": str(golden.tensor.dtype).removeprefix("torch.").replace("bfloat16", "float32"),
        "angles": {"exact": "exact", "model": kind.own_angles, "": None}[golden.angles],
        "meaning": golden.meaning,
        "tolerance": dataclasses.asdict(golden.tolerance),
    }


def _json(data: dict[str, Any]) -> str:
    """Indented, with every list of numbers on one line."""
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    return re.sub(r"\[[^][{}\"]*\]", lambda match: " ".join(match[0].split()), text)


def _check_folder(folder: Path) -> None:
    check_folder_target("folder", folder, whole=True)
    if folder.is_dir() and not (folder / DESCRIPTION).is_file() and any(folder.iterdir()):
        raise ValueError(f"folder must be new, empty, or hold older vectors, got {str(folder)!r}; name another")
