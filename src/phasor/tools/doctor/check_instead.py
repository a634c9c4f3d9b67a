"""The examination of what stands in place of a rotation: what is added to logits and tokens, in every way of calling.

Beside the config stands one plain call. Every other way of calling stands beside that call, at the same positions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ...eye.added import Added, added_before
from ...eye.attention import attentions
from ...eye.bias import LogitBias, biases_of
from ...eye.tape import Tape
from ...models.without_rotation import ROUNDED, SHARED
from .added import Table, deviation_of_positions, first_row, in_layout, lost, reordered, table_of
from .biases import WITHIN, WITHIN_HALF, Known, deviation_of_bias, factor_of, meant, rule_of
from .check_ways import config_of
from .deviation import Deviation
from .implementation import attending_by
from .observation import Observation
from .report import ADDED, BIAS, Check
from .running import PLAIN, Running
from .told_of_calls import without_fault, wrong_in_calls
from .ways import AND_ON, ON, Met, Piece, Way, long_call, long_padded, one_call, recorded, ways

Key = tuple[str, int]
LONG = 320  # tokens: beyond 256, where bfloat16 has no odd numbers
SHORTEST = 16


@dataclass
class Read:
    """One tape of a way: the biases of each attention and what is added, call by call."""

    biases: dict[Key, list[list[LogitBias]]] = field(default_factory=dict)
    added: list[list[Added]] = field(default_factory=list)


def check_instead(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """Of the model, or its decoder, and of the encoder beside it."""
    for part in observed.parts:
        yield from _Examined(observed, part).checks()


def wrong_when_plain(observed: Observation) -> str:
    """What is wrong, beside the config, in what the plain implementation of attention adds; empty for nothing."""
    with attending_by(observed.model, PLAIN):
        found = _Examined(observed, observed.parts[0]).beside_config()
    return "" if isinstance(found, str) else next((row.reason for row in found if row.verdict == "wrong"), "")


def read(tape: Tape, calls: int) -> Read:
    """What stands in place of a rotation in each attention that every call of a tape reaches."""
    found, there = Read(), dict[str, list]()
    for attention in attentions(tape):
        there.setdefault(attention.module, []).append(attention)
    reached = {module: those for module, those in there.items() if len(those) % calls == 0}
    for module, those in reached.items():
        each = len(those) // calls
        for number in range(each):
            found.biases[module, number] = [list(biases_of(tape, a)) for a in those[number::each]]
    first = next(iter(reached.values()), [])
    found.added = [list(added_before(tape, a)) for a in first[:: max(1, len(first) // calls)]]
    return found


class _Examined:
    """One part of a model beside its config and in every way of calling it."""

    def __init__(self, observed: Observation, subject: Running) -> None:
        self.observed, self.subject, self.path = observed, subject, subject.path
        self.model: nn.Module = subject.whole
        self.config = getattr(subject.model, "config", observed.model.config)
        self.caches = True  # until that is seen not to be so
        self.half = any(p.dtype in HALF for p in self.model.parameters())
        self.biases: dict[tuple[Key, int], Known] = {}
        self.tables: dict[int, Table] = {}  # which of all that is added -> the vectors of positions

    def _ways(self) -> list[Way]:
        """No longer than a text may be, by the config and by the tables that were seen."""
        tokens, config = self.observed.tokens(), self.config
        ends = [n for name in ENDS if isinstance(n := getattr(config, name, None), int) and n >= SHORTEST]
        most = min([*ends, *(table.reach for table in self.tables.values() if table.reach)], default=None)
        length = min(LONG, most or LONG)
        long = long_call(tokens, length - ON) if self.caches else one_call(tokens, length)
        longer = [long_padded(tokens, length), long]
        found = ways(tokens, most, None, self.subject.counts and not self.path, long=longer)
        return [_with_padding(way, getattr(config, "pad_token_id", None)) for way in found]

    def checks(self) -> list[Check]:
        """Those beside the config, then one of each way of calling, or one for each fault there."""
        found = self.beside_config()
        if isinstance(found, str):
            return [self._blank(BIAS, self._ways()[0], found, needed=True)]
        if not found:
            return []
        wrong: dict[str, list[tuple[Met, Deviation]]] = {BIAS: [], ADDED: []}
        for number in range(1, len(self._ways())):
            way = self._ways()[number]  # which one is long, is known when others were tried
            way = way if self.caches or not way.name.endswith(AND_ON) else way.alone or way
            faults, unseen = self._met(way)
            for what, compared in ((BIAS, self.biases), (ADDED, self.tables)):
                mine = [(one, why) for one, why in faults if one.name == what]
                wrong[what] += mine
                if compared and not mine:
                    found.append(
                        without_fault(self._blank(what, way, ""), [one[1:] for one in unseen if one[0] == what])
                    )
        told = {check.cause for check in found if check.verdict == "wrong"}
        told |= {"positions"} if told & {"first index", "added twice"} else set()  # what follows from these
        for what, those in wrong.items():
            found += wrong_in_calls([(one, why) for one, why in those if why.cause not in told], what)
        return [self._needed(check, found) for check in found]

    def beside_config(self) -> list[Check] | str:
        """One plain call beside the config; or why there is none."""
        plain = self._ways()[0]
        tape = recorded(self.subject, plain)
        if isinstance(tape, str):
            return tape
        seen = read(tape, 1)
        return list(dict.fromkeys((*self._of_biases(seen, plain.pieces[0]), *self._of_added(seen, plain.pieces[0]))))

    def _needed(self, check: Check, found: Sequence[Check]) -> Check:
        """Where nothing of a kind could be compared, nothing is right."""
        kind = ADDED if check.what.startswith(ADDED) else BIAS
        return replace(
            check, needed=check.needed or not any(c.verdict != "not shown" and c.what.startswith(kind) for c in found)
        )

    def _blank(self, what: str, way: Way, reason: str, needed: bool = False) -> Check:
        blank = Check(what=f"{what} {way.name}", against="itself", verdict="not shown")
        return replace(blank, where=self.path, reason=reason, needed=needed)

    def _of_biases(self, seen: Read, piece: Piece) -> Iterator[Check]:
        """Each bias beside what the config says of it; what is right goes on by that rule."""
        tables = (bias.table for (biases,) in seen.biases.values() for bias in biases)
        shared = next((table for table in tables if table is not None), None)
        for key, (biases,) in seen.biases.items():
            config = config_of(self.model, key[0]) or self.config
            check = Check(where=key[0], what=BIAS, against="spec", verdict="not shown")
            count = sum(len(those) for (where, _), (those,) in seen.biases.items() if where == key[0])
            if key[1] == 0 and count < (must := meant(config, key[0])):
                says = f"{count or 'no'} bias is added, and by the config there must be {must}"
                yield replace(check, verdict="wrong", cause="bias lost", reason=says, way_out=WAY)
            for number, bias in enumerate(biases):
                count, at = piece.tokens.shape[1], piece.positions.cpu()
                if bias.relative is None or tuple(bias.values.shape[-2:]) != (count, count):
                    yield replace(check, reason="its keys are not the tokens that were given")
                    continue
                half = self.half or getattr(config, "model_type", "") in ROUNDED
                rule, other = (rule_of(bias, config, causal) for causal in (bias.causal, not bias.causal))
                known = Known(bias, WITHIN_HALF if half else WITHIN, other=None if isinstance(other, str) else other)
                if isinstance(rule, str):
                    self.biases[key, number] = known
                    yield replace(check, reason=f"{rule}: {bias.describe()}", needed=True)
                    continue
                by_rule = replace(known, rule=rule)
                why = deviation_of_bias(by_rule, bias, at, at, piece.live.cpu())
                wrong = isinstance(why, Deviation)
                self.biases[key, number] = known if wrong else by_rule
                if isinstance(why, Deviation):
                    yield replace(check, verdict="wrong", cause=why.cause, reason=why.says, way_out=WAY)
                elif getattr(config, "model_type", "") in SHARED and _apart(bias.table, shared):
                    says = "its table is another than that of the first layer, and all layers of this model share one"
                    yield replace(check, verdict="wrong", cause="another table", reason=says, way_out=WAY)
                elif bias.formed_in in HALF and not half:
                    says = (
                        f"it is formed in {str(bias.formed_in).removeprefix('torch.')}, in which far positions are one"
                    )
                    yield replace(check, verdict="wrong", cause="half precision", reason=says, way_out=WAY)
                else:
                    yield replace(check, verdict="not shown" if why else "right", reason=why)
                if bias.looked_up:
                    yield _of_factors(replace(check, what=f"{BIAS}, its factor"), bias, factor_of(config))

    def _of_added(self, seen: Read, piece: Piece) -> Iterator[Check]:
        for number, added in enumerate(seen.added[0] if seen.added else []):
            config = config_of(self.model, f"{added.module}.x") or self.config
            check = Check(where=added.module, what=ADDED, against="spec", verdict="not shown")
            if says := lost(added, config):
                yield replace(check, verdict="wrong", cause="positions lost", reason=says, way_out=WAY)
            if not added.varies or added.multiplied:
                continue
            self.tables[number] = table = table_of(added, self.model, config)
            first = first_row(added, self.model, config)
            if any(torch.equal(added.values, other.values) for other in seen.added[0][:number]):
                says = "the same vectors are added twice"
                yield replace(check, verdict="wrong", cause="added twice", reason=says, way_out=WAY)
            elif first is None:
                lies = in_layout(added)
                blank = replace(check, reason=lies or added.describe(), needed=not lies)
                yield replace(blank, verdict="right") if lies else blank
            elif reordered(added):
                says = "the channels of the rows of its table come in another order"
                yield replace(check, verdict="wrong", cause="channels exchanged", reason=says, way_out=WAY)
            elif table.first is None:
                yield replace(check, reason="what is added is no row of a table", needed=True)
            elif table.first != first:
                says = f"the first token gets row {table.first} of its table, and must get row {first}"
                yield replace(check, verdict="wrong", cause="first index", reason=says, way_out=WAY)
            elif why := deviation_of_positions(table, added, piece):
                if isinstance(why, Deviation):
                    yield replace(check, verdict="wrong", cause=why.cause, reason=why.says, way_out=WAY)
                else:
                    yield replace(check, reason=why, needed=True)
            else:
                yield replace(check, verdict="right")

    def _met(self, way: Way) -> tuple[list[tuple[Met, Deviation]], list[tuple[str, str, str]]]:
        """What is wrong in a way of calling; and what was not seen of it: its name, where, and why."""
        wrong: list[tuple[Met, Deviation]] = []
        unseen: list[tuple[str, str, str]] = []
        tape = recorded(self.subject, way)
        if isinstance(tape, str):
            self.caches = self.caches and len(way.pieces) == 1
            return wrong, [(BIAS, self.path, tape), (ADDED, self.path, tape)]
        seen = read(tape, len(way.pieces))

        def note(met: Met, why: Deviation | str) -> None:
            if isinstance(why, Deviation):
                wrong.append((met, why))
            elif why:
                unseen.append((met.name, met.where, why))

        positions = [piece.positions.cpu() for piece in way.pieces]
        live = [piece.live.cpu() for piece in way.pieces]
        for (key, number), known in self.biases.items():
            if key not in seen.biases:
                unseen.append((BIAS, key[0], "it was not reached, or not in each of the calls"))
            if way.autocast:
                known = replace(known, within=WITHIN_HALF)
            for call, biases in enumerate(seen.biases.get(key, [])):
                met = Met(way, call, key[0], BIAS, positions[call])
                keys, alive = (torch.cat(x[: call + 1], -1) for x in (positions, live))
                bias = biases[number] if number < len(biases) else _none(known, way.rows, met, keys)
                note(met, _of_bias(known, bias, met, keys, alive))
        for call, added in enumerate(seen.added):
            for number, table in self.tables.items():
                if number < len(added):
                    met = Met(way, call, added[number].module, ADDED, positions[call])
                    note(met, deviation_of_positions(table, added[number], way.pieces[call]))
                else:
                    unseen.append((ADDED, self.path, "nothing is added there"))
        return wrong, unseen


def _of_factors(check: Check, bias: LogitBias, must: float | None) -> Check:
    """The numbers that multiply what a table of positions and the contents add, beside the one that a config says."""
    if must is None or None in bias.factors:
        says = "by what number the rows that are looked up are multiplied was not looked at"
        return replace(check, reason=says, needed=True)
    whose = ("the contents' own", "the positions'")
    for seen, of in zip(bias.factors[::-1], whose, strict=True):
        if seen is not None and not math.isclose(seen, must, rel_tol=WITHIN_HALF):
            says = f"{of} products are multiplied by {seen:.4g}, and must be by {must:.4g}"
            return replace(check, verdict="wrong", cause="factor of the bias", reason=says, way_out=WAY)
    return replace(check, verdict="right")


def _apart(table: Tensor | None, other: Tensor | None) -> bool:
    return table is not None and other is not None and not torch.equal(table, other)


def _none(known: Known, rows: int, met: Met, keys: Tensor) -> LogitBias:
    """What is seen where nothing is added, or the same for all keys."""
    values = torch.zeros(rows * len(known.bias.values), met.positions.shape[1], keys.shape[1], dtype=torch.float64)
    distance = met.positions[:, :, None] - keys[:, None, :]
    seen = (distance >= 0) | torch.tensor(not known.bias.causal)
    return LogitBias(values, seen.repeat_interleave(len(known.bias.values), 0), known.bias.table)


def _of_bias(known: Known, bias: LogitBias, met: Met, keys: Tensor, live: Tensor) -> Deviation | str:
    """As `deviation_of_bias`; no fault where a bias counts tokens for itself, whatever positions are given."""
    counted = torch.arange(keys.shape[1]).expand_as(keys)
    if met.way.given and not torch.equal(counted, keys):
        why = deviation_of_bias(known, bias, counted[:, -met.positions.shape[1] :], counted, live)
        if not isinstance(why, Deviation):
            return why or "it counts the tokens, whatever positions are given"
    return deviation_of_bias(known, bias, met.positions, keys, live)


HALF = (torch.bfloat16, torch.float16)
ENDS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions")  # how long a text may be
WAY = "build the model from the config that its weights were trained with, and compare the code with phasor.encodings"


def _with_padding(way: Way, pad: int | None) -> Way:
    """Where its mask says padding, the token that a model may take for it."""
    if pad is None:
        return way
    pieces = []
    for piece in way.pieces:
        tokens = piece.tokens if piece.mask is None else piece.tokens.masked_fill(~piece.live, pad)
        pieces.append(replace(piece, tokens=tokens))
    return replace(way, pieces=tuple(pieces))
