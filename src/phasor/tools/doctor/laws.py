"""What every relative encoding must do, whatever its frequencies are: laws of logits, that need no reference.

Each law takes a `Trial` and returns one `Check`. What differs by more than rounding is a fault. They are for a function
of which nothing but its logits is seen, and for `phasor.testing`; of a model the operators on q and k are seen in the
same ways of calling, and say more. So `diagnose` asks a model only for what no operator shows: whether its logits are
numbers, and whether another implementation of attention, or the compiled one, gives the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...rotary.spec import RotarySpec
from ...support.findings import Difference
from .check_instead import wrong_when_plain
from .measurement import Trial
from .observation import Observation
from .report import BY_DESIGN, Check
from .running import Misuse, NotChecked, Subject

Law = Callable[[Trial], Check]
MOVED = 300  # beyond 256, where bfloat16 has no odd numbers; much farther out float32 angles are coarse themselves
PAST = "positions restart or move when the cache is read: give position_ids that go on from the cached tokens"


def shift(trial: Trial) -> Check:
    """All positions moved by the same number change nothing: scores depend on distances."""

    def moved() -> Tensor:
        return trial.subject.logits(trial.tokens, trial.positions + MOVED)

    says = f"scores depend on where a text stands, and must depend on distances only (moved by {MOVED})"
    way = "look at what rotates q and k: one of them only, the wrong sign, tables or products in half precision"
    return trial.judged("shift of all positions", moved, trial.logits, says, way, far=trial.last + MOVED)


def own_positions(trial: Trial) -> Check:
    """Each row of a batch is rotated by positions of its own, whose distances differ from those of the other rows."""
    rows = torch.arange(len(trial.tokens), device=trial.tokens.device)[:, None]
    positions = trial.positions * (1 + rows)

    def together() -> Tensor:
        return trial.with_gaps(trial.tokens, positions)

    def alone() -> Tensor:
        pairs = zip(trial.tokens.split(1), positions.split(1), strict=True)
        return torch.cat([trial.with_gaps(tokens, own) for tokens, own in pairs])

    says = "a row whose positions differ from those of the other rows gives other logits than alone"
    way = "form cos and sin for each row, [B, S, channels], not from the first row of position_ids"
    far = int(positions.max())
    return trial.judged("own positions of each row", together, alone, says, way, far)


def effect(trial: Trial) -> Check:
    """Positions move the logits at all. Where they do not, no law says anything."""
    check = Check(what="positions have an effect", against="itself", verdict="not shown")
    try:
        if not trial.finite.all():
            raise NotChecked("the logits are not finite")
        moved, allowed, _ = trial.effect, trial.allowed, trial.causal  # known before a law makes frequencies grow
    except NotChecked as reason:
        return replace(check, reason=str(reason))
    except Exception as error:  # a model's own code raises what it likes; the laws say it too
        return replace(check, reason=f"the model cannot be run so: {type(error).__name__}")
    if moved > allowed:
        return replace(check, verdict="right", difference=check.apart(size=moved, of="logits"))
    says = f"all positions halved move the logits by {moved:.1g}, which rounding may do"
    return replace(check, reason=says, needed=True)


def cached(trial: Trial) -> Check:
    """Tokens one at a time through a cache, and some more at once, give what one call gives."""
    first = max(1, trial.length // 2)
    singles = min(3, trial.length - first)
    lengths = [first, *[1] * singles, trial.length - first - singles]
    return _in_pieces(trial, "cached = full", lengths, "token by token through the cache")


def chunked(trial: Trial) -> Check:
    """A prompt given in pieces through a cache gives what one call gives."""
    third = max(1, trial.length // 3)
    return _in_pieces(trial, "chunked = full", [third, third, trial.length - 2 * third], "in three pieces")


def _in_pieces(trial: Trial, what: str, lengths: Sequence[int], how: str) -> Check:
    def pieces() -> Tensor:
        if not trial.causal:
            raise NotChecked("every token sees all others, so there is nothing to cache")
        return trial.subject.in_pieces(trial.tokens, trial.positions, [n for n in lengths if n > 0])

    def whole() -> Tensor:  # which counts positions as the pieces do
        return trial.subject.in_pieces(trial.tokens, trial.positions, [trial.length])

    return trial.judged(what, pieces, whole, f"a prompt {how} gives other logits than in one call", PAST)


def padded_left(trial: Trial) -> Check:
    """Padding before a text changes nothing of the text, whose positions stay its own."""
    return _padded(trial, "padded left = alone", left=True)


def padded_right(trial: Trial) -> Check:
    """Padding behind a text changes nothing of the text."""
    return _padded(trial, "padded right = alone", left=False)


def _padded(trial: Trial, what: str, *, left: bool, pads: int = 5) -> Check:
    def run(value: int) -> Tensor:
        tokens, mask = _beside(trial.tokens, value, pads, left), _beside(torch.ones_like(trial.tokens), 0, pads, left)
        end = trial.positions[:, :1] if left else trial.positions[:, -1:]
        more = end.expand(-1, pads)
        positions = torch.cat((more, trial.positions) if left else (trial.positions, more), dim=1)
        logits = trial.subject.logits(tokens, positions, mask)
        return logits[:, pads:] if left else logits[:, :-pads]

    def alone() -> Tensor:
        ids = trial.tokens[0, :2].tolist()
        first = run(ids[0])
        if not trial.close(run(ids[1]), first):
            raise NotChecked("padding reaches the text through something else than attention, whatever the mask says")
        return first

    says = "a padded text gives other logits than alone, with the same positions"
    return trial.judged(what, alone, trial.logits, says, "give position_ids that count the text's own tokens")


def _beside(rows: Tensor, value: int, count: int, left: bool) -> Tensor:
    more = rows.new_full((len(rows), count), value)
    return torch.cat((more, rows) if left else (rows, more), dim=1)


def packed(trial: Trial) -> Check:
    """Documents packed into one row, each with positions of its own, give what they give alone."""
    half = trial.length // 2
    lengths = [half, trial.length - half]

    def run(tokens: Tensor) -> Tensor:
        positions = torch.cat([trial.positions[:1, :n] for n in lengths], dim=1)
        return trial.subject.packed(tokens, positions, lengths)[:, half:]

    def together() -> Tensor:
        first = run(trial.tokens[:1])
        other = torch.cat((trial.tokens[1:2, :half], trial.tokens[:1, half:]), dim=1)
        if not trial.close(run(other), first):
            raise NotChecked("the model does not keep documents apart: one reaches the next")
        return first

    def separate() -> Tensor:
        return trial.subject.logits(trial.tokens[:1, half:], trial.positions[:1, : lengths[1]])

    says = "a packed document gives other logits than alone, with the same positions"
    return trial.judged("packed = separate", together, separate, says, "let positions restart with every document")


def batched(trial: Trial) -> Check:
    """A text gives the same logits alone and in a batch with a longer one."""
    short = max(2, trial.length // 2)

    def beside() -> Tensor:
        if trial.causal:
            return trial.logits()[:1, :short]
        mask = torch.ones_like(trial.tokens)
        mask[0, short:] = 0
        return trial.subject.logits(trial.tokens, trial.positions, mask)[:1, :short]

    def alone() -> Tensor:
        return trial.subject.logits(trial.tokens[:1, :short], trial.positions[:1, :short])

    says = "a text gives other logits alone than in a batch with a longer one"
    way = "frequencies follow the longest text of a batch; choose them per sequence, or fix the length"
    return trial.judged("alone = in a batch with longer rows", beside, alone, says, way)


def implementation(trial: Trial) -> Check:
    """The chosen implementation of attention gives what the plain one gives."""

    def plainly() -> Tensor:
        return trial.subject.plainly(trial.tokens, trial.positions)

    says = "the chosen implementation of attention gives other logits than the plain one"
    way = "choose attn_implementation='eager', and look at its mask and its scale"
    return trial.judged("eager = the chosen attention", trial.logits, plainly, says, way)


LAWS: tuple[Law, ...] = (
    shift,
    own_positions,
    cached,
    chunked,
    padded_left,
    padded_right,
    packed,
    batched,
    implementation,
)


def not_finite(trial: Trial) -> Check | None:
    """The fault; None for logits that are numbers, and for a model that cannot be run, of which each law says why."""
    try:
        wrong = ~trial.finite
    except Misuse:
        raise
    except Exception:
        return None
    if not wrong.any():
        return None
    token = int(wrong.any(0).nonzero()[0])
    row = int(wrong[:, token].nonzero()[0])
    says = f"{int(wrong.sum())} of {wrong.numel()} tokens have logits that are no numbers, the first in row {row}"
    where = trial.subject.first_not_finite(trial.tokens, trial.positions)
    return Check(
        what="logits",
        against="itself",
        verdict="wrong",
        cause="logits are not finite",
        reason=f"{says}; {where}" if where else says,
        way_out="look for weights that were never loaded, and for values that overflow; then positions can be checked",
        difference=Difference(position=float(token)),
    )


def all_laws(subject: Subject, tokens: Tensor, rotates: bool = False) -> Iterator[Check]:
    """All laws, of a function. That positions have an effect need not be seen where q and k were seen to be rotated."""
    trial = Trial.of(subject, tokens, [])
    moved = effect(trial)
    yield replace(moved, needed=moved.needed and not rotates)
    if (fault := not_finite(trial)) is not None:
        yield fault
    yield from (law(trial) for law in LAWS)


def check_logits(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """Of a model: whether its logits are numbers, and those of the plain implementation of attention."""
    if (says := next((spec for spec in observed.specs if spec.length_dependent), None)) is not None:
        yield by_design(says)
    trial = Trial.of(observed.subject, observed.inputs.tokens, observed.specs)
    if (fault := not_finite(trial)) is not None:
        yield fault
    row = implementation(trial)
    sound = observed.still and not any(one.verdict == "wrong" for one in before)
    if row.verdict == "wrong" and sound and (why := wrong_when_plain(observed)):  # then the chosen one has no measure
        row = replace(row, verdict="not shown", cause="", reason=f"the plain implementation is wrong: {why}")
    yield row
    if observed.still and not any(row.verdict == "wrong" for row in before):  # of what turns, kept keys were seen
        yield cached(trial)


def by_design(spec: RotarySpec) -> Check:
    """A text in pieces is meant to give other logits than at once, beyond the length where its encoding changes."""
    assert spec.scaling is not None
    says = f"{spec.scaling.name}: its frequencies depend on the length of the sequence"
    says += f", from {spec.scaling.trained_length:,} on" if spec.scaling.trained_length else ""
    return Check(
        what="one text, in pieces and at once", against="itself", verdict="right", cause=BY_DESIGN, reason=says
    )


def check_compiled(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """The logits of a model as it is compiled, beside those of its plain code: what runs is what was looked at."""
    wrapper, subject = observed.wrapper, observed.subject
    if not (hasattr(wrapper, "_orig_mod") or any(_is_compiled(module) for module in wrapper.modules())):
        return
    trial = Trial.of(subject, observed.inputs.tokens, observed.specs)

    def compiled() -> Tensor:
        with torch.compiler.set_stance("default"):
            return subject.through(wrapper, trial.tokens, trial.positions)

    says = "the compiled model gives other logits than its own code"
    way = "call torch.compiler.reset(), compile it anew, and look at what was changed after it was compiled"
    yield replace(trial.judged("compiled = eager", compiled, trial.logits, says, way), needed=True)


def _is_compiled(module: nn.Module) -> bool:
    """In place, or in its forward."""
    return module._compiled_call_impl is not None or hasattr(module.forward, "_torchdynamo_orig_callable")
