"""In what a reading by a row differs from what was observed of the same config, whatever either is called.

Two specs that turn alike are equal here: frequencies are compared as numbers, at every length that either tells apart.
"""

from collections.abc import Iterator

import torch

from phasor.rotary.model_rotary import ModelRotary
from phasor.rotary.spec import RotarySpec

NEAR = 2e-6  # relative: float32 roundings of numbers that were measured rather than found
OF_MODEL = ("prefix_tokens", "suffix_tokens", "heads", "own_angles", "num_heads", "num_kv_heads")
OF_SPEC = ("layout", "reverse", "tables", "coordinates")
FAR = 4  # times the length of training: where every scaling that depends on the length differs from itself


def differences(seen: ModelRotary, said: ModelRotary) -> dict[str, str]:
    """What differs -> both, in words; empty where the row says what was seen.

    >>> spec = RotarySpec(head_dim=8)
    >>> one = ModelRotary(model_type="a", layers=(spec,), layer_types=("attention",), num_heads=2)
    >>> differences(one, one)
    {}
    >>> other = ModelRotary(model_type="a", layers=(spec.replace(base=9.0),), layer_types=("attention",), num_heads=2)
    >>> list(differences(one, other))
    ['frequencies']
    """
    found = dict(_of_models(seen, said))
    if len(seen.layers) != len(said.layers):
        return found | {"layers": f"{len(seen.layers)} observed, the row reads {len(said.layers)}"}
    for pair, layer in {pair: i for i, pair in reversed(list(enumerate(_pairs(seen, said))))}.items():
        for name, text in _of_specs(*pair):
            found.setdefault(name, f"layer {layer}: {text}")
    return found


def _pairs(seen: ModelRotary, said: ModelRotary) -> list[tuple[RotarySpec | None, RotarySpec | None]]:
    return list(zip(seen.layers, said.layers, strict=True))


def _of_models(seen: ModelRotary, said: ModelRotary) -> Iterator[tuple[str, str]]:
    for name in OF_MODEL:
        mine, theirs = getattr(seen, name), getattr(said, name)
        if mine != theirs:
            yield name, f"{mine} observed, the row reads {theirs}"
    if set(seen.targets) != set(said.targets):
        yield "targets", f"{', '.join(seen.targets)} observed, the row reads {', '.join(said.targets)}"
    if abs(seen.softmax_factor / said.softmax_factor - 1) > NEAR:
        yield "softmax_factor", f"{seen.softmax_factor} observed, the row reads {said.softmax_factor}"
    if seen.temperatures != said.temperatures:
        yield "temperatures", f"{_first(seen.temperatures)} observed, the row reads {_first(said.temperatures)}"


def _first(values: tuple[object, ...]) -> object:
    return next((value for value in values if value is not None), None)


def _of_specs(seen: RotarySpec | None, said: RotarySpec | None) -> Iterator[tuple[str, str]]:
    if seen is None or said is None:
        if seen is not said:
            yield "rotates", f"{_whether(seen)} observed, the row reads {_whether(said)}"
        return
    for name in OF_SPEC:
        mine, theirs = getattr(seen, name), getattr(said, name)
        if mine != theirs:
            yield name, f"{mine} observed, the row reads {theirs}"
    if seen.pairs != said.pairs:
        return
    mine, theirs = (spec.axes.axis_of_pair(spec.pairs) for spec in (seen, said))
    if mine != theirs or (seen.second is None) != (said.second is None):
        yield "axes", f"{seen.axes}, {seen.second} observed, the row reads {said.axes}, {said.second}"
    elif seen.second is not None and said.second is not None:
        yield from _of_specs(*(spec.replace(axes=spec.second, second=None) for spec in (seen, said)))
    for length in _lengths(seen, said):
        at = "" if length is None else f" at {length} tokens"
        mine, theirs = (spec.inv_freq(length) * spec.position_scale for spec in (seen, said))
        if not torch.allclose(mine, theirs, rtol=NEAR, atol=0):
            pair = int((mine - theirs).abs().argmax())
            yield "frequencies", f"pair {pair}{at}: {mine[pair]:.8g} observed, the row reads {theirs[pair]:.8g}"
        ours, its = (spec.attention_factor(length) for spec in (seen, said))
        if abs(ours / its - 1) > NEAR:
            yield "factor", f"{ours:.8g}{at} observed, the row reads {its:.8g}"


def _whether(spec: RotarySpec | None) -> str:
    return "no rotation" if spec is None else "a rotation"


def _lengths(*specs: RotarySpec) -> list[int | None]:
    """None, and lengths beyond those in which a scaling is what it is inside the trained one."""
    scalings = [spec.scaling for spec in specs if spec.scaling is not None and spec.length_dependent]
    trained = {
        length
        for scaling in scalings
        for name in ("original_max_position", "max_position")
        if isinstance(length := getattr(scaling, name, None), int)
    }
    return [None, *sorted({m for n in trained for m in (n, n + 1, FAR * n)})]
