"""Write docs/models.md: what phasor reads from the default config of every model type that rotates.

    python docs/models.py            writes the page

Needs the version of transformers that the conformance suite is written for.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from conformance.conftest import VERSION  # noqa: E402
from conformance.not_covered import LEFT, NOT_COVERED  # noqa: E402
from conformance.walk import ARGUMENTS, default_config, model_types, places, quiet  # noqa: E402
from phasor.models.configs import ModelRotary, read_parts  # noqa: E402
from phasor.models.reading.composite import ConfigTree  # noqa: E402
from phasor.models.reading.tower import HARMLESS  # noqa: E402
from phasor.models.rows import ROWS  # noqa: E402

OF_ALL = {"num_mtp_layers", "num_nextn_predict_layers", "per_layer_config"}

HEAD = f"""# Every rotary model type

What `phasor.read_parts` reads from the default config of each model type of transformers {VERSION} that
rotates, with one row for each part and each spec in it. Bases, widths and scalings below are the defaults of the config
class. In use the checkpoint's own config decides. Written by `python docs/models.py`; not edited by hand.

- **part**: the path inside a composite config; `·` is the config itself. A part "as `x`" is read like the model type
  `x`.
- **layers**: how many layers rotate with this spec, out of how many, and what the config calls them.
- **rotation**: the factors of the `RotarySpec`, as `describe()` says them. The model's code forms angles in float32
  and rounds cos and sin to the dtype of the activations, unless the row says otherwise.
- **keys it reads**: the keys of its config that its row looks at. Two kinds are left out, because they are the same in
  all families: those inside `rope_parameters` or `rope_scaling`, and those that say which layers only predict further
  tokens. Other keys about positions have no effect. Where such a key asks for an effect, the config is refused. The
  law of keys draws from all of them and compares with the model's own code.
- **unusual**: what else the model does, and what is left to the caller.
- **\\***: the default config leaves the rotation off, or describes a model that does not run. It was completed for
  this page.

| model type | part | layers | rotation | keys it reads | unusual |
|---|---|---|---|---|---|
"""
UNDER_PATCH = """
## Under `patch`

`make conformance` builds each of these types small and patches it. It compares the patched model with the unpatched one
on all inputs that the model takes, and each function that was replaced with the model's own, on the arguments of the
real call. These types are not covered, or are left unpatched:

| model type | why |
|---|---|
"""
USUAL = ", float32 angles (tables: activation)"


def page() -> str:
    with quiet():
        read = {name: dict(read_parts(default_config(name))) for name in model_types()}
    rows = [row for name in sorted(read) for row in _rows(name, read)]
    left = {name: f"left: {why}" for name, why in LEFT.items()}
    return "\n".join(
        (
            HEAD + "\n".join(f"| {' | '.join(row)} |" for row in rows),
            f"\n{len(read)} model types.",
            UNDER_PATCH + "\n".join(f"| `{name}` | {why} |" for name, why in sorted((NOT_COVERED | left).items())),
            "",
        )
    )


def _rows(name: str, read: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    completed = any(place.config.model_type in ARGUMENTS for place in places(default_config(name)))
    shown = f"`{name}`\\*" if completed else f"`{name}`"
    parts = {path: model for path, model in read[name].items() if isinstance(model, ModelRotary)}
    if not parts:
        yield shown, "·", "", "", "", "; ".join(dict.fromkeys(map(str, read[name].values())))
    for path, model in parts.items():
        here = f"`{path}`" if path else "·"
        if path and _same(read.get(model.model_type, {}).get(""), model):
            yield shown, here, "", f"as `{model.model_type}`", "", ""
            continue
        for row in _of_part(model, keys_read(name, path)):
            yield shown, here, *row


def keys_read(name: str, path: str) -> str:
    """The keys of one part that its row looks at; an indexer has none of its own."""
    with quiet():
        config = ConfigTree(default_config(name).to_dict(), ROWS)
        row = None if path in config.sub_models else config.row(path)
        if row is None or not row.readable:
            return ""
        _, keys = row.read(config.name(path), config.config(path), "")
    return ", ".join(f"`{key}`" for key in sorted(keys.used - HARMLESS.keys() - OF_ALL))


def _same(one: Any, other: ModelRotary) -> bool:
    return isinstance(one, ModelRotary) and (one.layers, one.layer_types) == (other.layers, other.layer_types)


def _of_part(model: ModelRotary, keys: str) -> Iterator[tuple[str, str, str, str]]:
    own = model.with_angles("float32")
    for n, (spec, layers) in enumerate(own.distinct.items()):
        words = Counter(model.layer_types[i] for i in layers)
        called = ", ".join(word for word in words if word != "attention")
        count = f"{len(layers)} of {len(model.layers)}" + (f" ({called})" if called else "")
        first = (keys, "; ".join(_unusual(model))) if n == 0 else ("", "")
        yield count, spec.describe().removesuffix(USUAL), *first


def _unusual(model: ModelRotary) -> Iterator[str]:
    if model.targets != ("q", "k"):
        yield f"rotates {', '.join(model.targets) or 'neither q nor k'}"
    if model.heads is not None:
        yield f"only the first {model.heads} heads"
    if model.prefix_tokens or model.suffix_tokens:
        yield f"{model.prefix_tokens} tokens before and {model.suffix_tokens} after are not rotated"
    if model.softmax_factor != 1:
        yield f"softmax scale times {model.softmax_factor:.6g}"
    for scheme, count in Counter(t for t in model.temperatures if t is not None).items():
        yield f"queries of {count} layers scaled by {scheme}"
    yield from model.notes


def main() -> None:
    text = page()
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
