"""Settings read back as the engine would, and compared with the wanted rotation."""

import math
from dataclasses import dataclass

from phasor import ModelRotary, RotarySpec
from phasor.support.findings import Difference, Finding, Verdict
from phasor.support.number_text import ranges

from ..engines import CannotSayError, Engine, EngineConfig, EngineReading, NotReadError, Settings, support_of

CLOSE = 1e-6  # of frequencies and factors, relative: ten times the rounding of float32


@dataclass(frozen=True)
class Proof:
    """The first settings whose reading is the wanted rotation, and that reading; None where there are none.

    ``verdict``: ``"right"``: the engine has the model and rotates as wanted; ``"wrong"``: it has no such model or no
    settings for the rotation; ``"not shown"``: what it has, or does with the config, was not read. ``reason``: why.
    """

    verdict: Verdict
    reason: str = ""
    settings: Settings | None = None
    reading: EngineReading | None = None


def prove(
    engine: Engine, config: EngineConfig, wanted: ModelRotary, length: int, takes: frozenset[str] | None = None
) -> Proof:
    """Whether the engine has the model, and settings that give the wanted rotation when they are read back.

    ``takes``: the flags to which the settings are confined, for a program that has words for these alone.
    """
    support = support_of(engine, config)
    if support.verdict == "wrong":
        return Proof("wrong", support.reason)
    try:
        settings, reading, why = _settings(engine, config, wanted, length, takes)
    except NotReadError as error:
        return Proof("not shown", str(error))
    except CannotSayError as error:
        settings, reading, why = None, None, str(error)
    if support.verdict == "right" and why:
        return Proof("wrong", why)
    return Proof(support.verdict, support.reason, settings, reading)


def _settings(
    engine: Engine, config: EngineConfig, wanted: ModelRotary, length: int, takes: frozenset[str] | None
) -> tuple[Settings | None, EngineReading | None, str]:
    """The first settings that are read back as wanted, the reading, and else why there are none."""
    why = f"the program has no words for the flags of {engine.name} that say this rotation"
    for settings in engine.write(config, wanted, length):
        if takes is not None and not takes >= settings.flags.keys():
            continue
        try:
            reading = engine.read_back(config, settings)
        except NotReadError:
            raise
        except ValueError as error:
            why = str(error)
            continue
        findings = differences(wanted, reading, length)
        if not findings:
            return settings, reading, ""
        unread = dict.fromkeys(rule.text for rule in reading.rules if "not read" in rule.text)
        why = "; ".join([*map(in_one_line, findings), *unread])
    return None, None, why


def in_one_line(finding: Finding) -> str:
    """``"layers 0-3: pair 7 would rotate 0.25 times as fast as wanted"``."""
    return ": ".join(filter(None, (finding.where, finding.reason)))


def differences(wanted: ModelRotary, reading: EngineReading, length: int) -> list[Finding]:
    """Where a reading differs from the wanted rotation; empty where it does not."""
    if reading.length is not None and reading.length < length:
        reason = f"{reading.engine} would take {reading.length:,} positions, and {length:,} are wanted"
        return [_wrong("length", reason, length, reading.length)]
    softmax = reading.model.softmax_factor
    if abs(softmax / wanted.softmax_factor - 1) > CLOSE:
        reason = f"the factor on the softmax would be {softmax:.6g}, and {wanted.softmax_factor:.6g} is wanted"
        return [_wrong("softmax factor", reason, wanted.softmax_factor, softmax)]
    layers: dict[tuple[RotarySpec | None, RotarySpec | None], list[int]] = {}
    for i, pair in enumerate(zip(wanted.layers, reading.model.layers, strict=True)):
        layers.setdefault(pair, []).append(i)
    return [
        finding
        for (expected, got), numbers in layers.items()
        if (finding := spec_difference(expected, got, length, f"layers {ranges(numbers)}"))
    ]


def spec_difference(
    expected: RotarySpec | None, got: RotarySpec | None, length: int, where: str = ""
) -> Finding | None:
    """The first thing in which two rotations differ at ``length``; None if they are equal to `CLOSE`."""
    if expected is None or got is None:
        return None if expected is got else _wrong("rotation", "only one of both rotates", where=where)
    frequencies, other = expected.inv_freq(length), got.inv_freq(length)
    if frequencies.shape != other.shape:
        reason = f"{len(frequencies)} pairs are wanted, {len(other)} rotate"
        return _wrong("pairs", reason, len(frequencies), len(other), where=where)
    gaps = ((other - frequencies).abs() / frequencies.abs().clamp(min=1e-30)).tolist()
    pair = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[pair] > CLOSE:
        ratio = float(other[pair] / frequencies[pair]) if frequencies[pair] else math.inf
        reason = f"pair {pair} would rotate {ratio:.4g} times as fast as wanted"
        return _wrong("frequencies", reason, float(frequencies[pair]), float(other[pair]), pair=pair, where=where)
    factors = expected.attention_factor(length), got.attention_factor(length)
    if abs(factors[1] / factors[0] - 1) > CLOSE:
        reason = f"the factor on cos and sin would be {factors[1]:.6g}, and {factors[0]:.6g} is wanted"
        return _wrong("factor on cos and sin", reason, *factors, where=where)
    return None


def _wrong(
    what: str,
    reason: str,
    expected: float | None = None,
    got: float | None = None,
    *,
    pair: int | None = None,
    where: str = "",
) -> Finding:
    size = None if expected is None or got is None else abs(got - expected)
    apart = Difference(size=size, of=what, pair=pair, expected=expected, got=got)
    return Finding(where=where, what=what, verdict="wrong", cause=what, reason=reason, difference=apart)
