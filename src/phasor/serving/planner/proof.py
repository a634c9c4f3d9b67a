"""Settings read back as the engine would, and compared with what was wanted."""

from ...models.configs import ModelRotary
from ...rotary.spec import RotarySpec
from ...support.number_text import ranges
from ..engines import CannotSayError, Engine, Reading, Seen, Settings

CLOSE = 1e-6  # of frequencies and factors, relative: ten times the rounding of float32


def prove(engine: Engine, seen: Seen, wanted: ModelRotary, length: int) -> tuple[Settings | None, Reading | None, str]:
    """The first settings whose reading is the wanted rotation, that reading, and else why there are none."""
    try:
        candidates = engine.write(seen, wanted, length)
    except CannotSayError as error:
        return None, None, str(error)
    why = ""
    for settings in candidates:
        try:
            reading = engine.read_back(seen, settings)
        except ValueError as error:
            why = str(error)
            continue
        apart = difference(wanted, reading, length)
        if not apart:
            return settings, reading, ""
        unread = dict.fromkeys(rule.text for rule in reading.rules if "not read" in rule.text)
        why = "; ".join([apart, *unread])
    return None, None, why


def difference(wanted: ModelRotary, reading: Reading, length: int) -> str:
    """Where a reading parts from what was wanted, in words; empty where it does not."""
    if reading.length is not None and reading.length < length:
        return f"{reading.engine} would take {reading.length:,} positions, and {length:,} are wanted"
    softmax = reading.model.softmax_factor
    if abs(softmax / wanted.softmax_factor - 1) > CLOSE:
        return f"the factor on the softmax would be {softmax:.6g}, and {wanted.softmax_factor:.6g} is wanted"
    apart: dict[str, list[int]] = {}
    for i, (mine, theirs) in enumerate(zip(wanted.layers, reading.model.layers, strict=True)):
        if text := unlike(mine, theirs, length):
            apart.setdefault(text, []).append(i)
    return "; ".join(f"layers {ranges(layers)}: {text}" for text, layers in apart.items())


def unlike(mine: RotarySpec | None, theirs: RotarySpec | None, length: int) -> str:
    if mine is None or theirs is None:
        return "" if mine is theirs else "only one of both rotates"
    ours, other = mine.inv_freq(length), theirs.inv_freq(length)
    if ours.shape != other.shape:
        return f"{len(ours)} pairs are wanted, {len(other)} turn"
    gaps = ((other - ours).abs() / ours.abs().clamp(min=1e-30)).tolist()
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[worst] > CLOSE:
        ratio = float(other[worst] / ours[worst]) if ours[worst] else float("inf")
        return f"pair {worst} would turn {ratio:.4g} times as fast as wanted"
    wanted, factor = mine.attention_factor(length), theirs.attention_factor(length)
    if abs(factor / wanted - 1) > CLOSE:
        return f"the factor on cos and sin would be {factor:.6g}, and {wanted:.6g} is wanted"
    return ""
