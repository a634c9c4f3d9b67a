"""The ways in which a model is called: at once, in a batch, padded, through a cache, after a long call, far away.

Each way is one tape, also where it is several calls through one cache: so of every key that is kept is seen what was
done to it since it was projected.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from ...eye.call import ERRORS, left_alone
from ...eye.sites import Side, Site, sites_of
from ...eye.tape import Tape, record
from ...eye.turning import Learned
from ...support.errors import first_line
from ...support.transformers_log import quiet
from .running import NotChecked, Running

MOST = 48  # tokens of a row
ROWS = 8
LONGEST = 256  # tokens of a call that is made to be long
FARTHEST = 2**16  # a position at which tokens are put: beyond it float32 angles say little
PADS = (0, 2, 5, 9, 1, 0, 7, 3)
ON = 6  # tokens that follow a long call
AND_ON = ", and on"  # behind the name of such a call
PLAIN = "in one call"
OWN_ROWS = "each row with positions of its own"
LATER = "after a longer call"
AUTOCAST = "under autocast"
EMBEDDED = "with embeddings in place of tokens"
STATIC = "through a static cache"
DOCUMENTS = "with several texts in a row"
TRAINING = "in training"
CHANCE = re.compile("drop|jitter")  # in names of numbers of a module


@dataclass(frozen=True)
class Piece:
    """One call: ``tokens`` and what their ``positions`` are meant to be, ``[B, S]``; ``given``: they are arguments.

    ``mask [B, cached + S]`` is 0 where a token is padding; ``documents``: its numbers tell the texts of a row apart.
    """

    tokens: Tensor
    positions: Tensor
    given: bool = False
    mask: Tensor | None = None
    documents: bool = False

    def mask_in(self, dtype: torch.dtype) -> Tensor | None:
        """As the model is given it: with four axes, added to scores, where no text may see another of its row."""
        if self.mask is None or not self.documents:
            return self.mask
        alike = (self.mask[:, :, None] == self.mask[:, None, :]) & self.mask[:, None, :].bool()
        seen = alike.tril() | torch.eye(len(alike[0]), dtype=torch.bool, device=alike.device)
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]

    @property
    def live(self) -> Tensor:
        """``[B, S]``: the tokens that are no padding."""
        if self.mask is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.mask[:, -self.tokens.shape[1] :].bool()


@dataclass(frozen=True)
class Way:
    """``pieces``: calls through one cache; ``before``: calls made before, each by itself."""

    name: str
    pieces: tuple[Piece, ...]
    before: tuple[Piece, ...] = ()
    autocast: bool = False
    training: bool = False
    embedded: bool = False
    static: bool = False

    def call_of(self, token: int) -> int:
        """In which of its calls a token was given."""
        ends = torch.tensor([piece.tokens.shape[1] for piece in self.pieces]).cumsum(0)
        return int((ends <= token).sum())

    @property
    def given(self) -> bool:
        return self.pieces[0].given

    @property
    def alone(self) -> "Way | None":
        """What can be called of it where all cannot: of a long call that goes on that one, of a cache one step."""
        if self.name.endswith(AND_ON):
            return Way(self.name.removesuffix(AND_ON), self.pieces[:1])
        return replace(self, name=f"{self.name}, one step", pieces=self.pieces[:2]) if len(self.pieces) > 2 else None

    @property
    def rows(self) -> int:
        return len(self.pieces[0].tokens)

    @property
    def last(self) -> int:
        return max(int(piece.positions.max()) for piece in self.pieces)


@dataclass(frozen=True, eq=False)
class Met:
    """What is looked at in one call of a way, by its ``name``; ``positions [B, tokens]`` are those that are meant."""

    way: Way
    call: int
    where: str
    name: str
    positions: Tensor

    def fresh(self, tokens: Sequence[int]) -> bool:
        """Whether any of the tokens was given in this very call."""
        return True


@dataclass(frozen=True, eq=False)
class Turned(Met):
    """One of q and k of one attention, its ``name``, in one call of a way.

    ``longest [tokens]``: the length that the call had in which each token was rotated.
    """

    number: int
    site: Site
    side: Side
    live: Tensor
    longest: Tensor

    def fresh(self, tokens: Sequence[int]) -> bool:
        return self.name == "q" or any(self.way.call_of(token) == self.call for token in tokens)

    @property
    def key(self) -> tuple[str, int, str]:
        return self.where, self.number, self.name


@dataclass(frozen=True)
class Called:
    """What was seen of a way, or why nothing was."""

    way: Way
    turned: tuple[Turned, ...] = ()
    why_not: str = ""
    sites: tuple[Site, ...] = field(default=(), repr=False)
    tape: Tape | None = field(default=None, repr=False)


def ways(
    tokens: Callable[[int, int], Tensor],
    declared: int | None,
    original: int | None,
    counts: bool,
    caches: bool = True,
    embeds: bool = False,
    static: int = 0,
    long: list[Way] | None = None,
) -> list[Way]:
    """``tokens(rows, length)`` makes ids up; ``original``: where an encoding changes with the length.

    ``counts``: the model takes positions, so that they may be given. ``caches``: it may keep keys. ``long``: other long
    calls than a rotation needs. ``embeds``: it takes embeddings; ``static``: so many tokens may be in a
    static cache of it, in which none moves.
    """
    most = min(MOST, declared or MOST, original or MOST)
    some = max(8, most // 2)
    found = [_plain(tokens, most)]
    if caches:
        pieces = _in_pieces(tokens, most)
        found += [pieces, replace(pieces, name=f"{pieces.name}, {AUTOCAST}", autocast=True)]
    if (length := min(some, static)) > 7:
        found.append(replace(_through(tokens(1, length), [length - 6, 4, 1, 1], STATIC), static=True))
    found += [_padded(tokens, some, left, rows) for left, rows in ((True, ROWS), (False, ROWS // 2))]
    found += [replace(found[0], name=EMBEDDED, embedded=True)] * embeds
    long = [*(long or _long(tokens, declared, original, caches))]
    before = long[-1].pieces[:1]
    if counts and original and original >= LONGEST:  # so many tokens take long: a few that stand there do
        long += [_far(tokens, original), _far(tokens, original + 1)]
        before = _far(tokens, max(original, declared or 0) + 8).pieces
    if counts and declared and declared > long[-1].last:  # where no call of many tokens reaches
        long.insert(0, _far(tokens, min(declared, FARTHEST), caches))
    if counts:
        found += [_rows(tokens, most), _documents(tokens, some), *([_generating(tokens, most)] if caches else [])]
    ids = tokens(1, most)
    found.append(Way(AUTOCAST, (Piece(ids, _count(ids)),), autocast=True))
    found.append(Way(TRAINING, (Piece(ids, _count(ids)),), training=True))
    found += long  # and last what a state shows that outlasts them
    ids = tokens(1, some)
    found.append(Way(LATER, (Piece(ids, _count(ids)),), before=before))
    return found


def _count(ids: Tensor, start: int = 0) -> Tensor:
    return torch.arange(start, start + ids.shape[1], device=ids.device).expand_as(ids)


def _plain(tokens: Callable[[int, int], Tensor], most: int) -> Way:
    ids = tokens(1, most)
    return Way(PLAIN, (Piece(ids, _count(ids)),))


def _in_pieces(tokens: Callable[[int, int], Tensor], most: int) -> Way:
    """A prompt, a token, two, a chunk and a token again, in two rows."""
    first = most // 3
    return _through(tokens(2, most), [first, 1, 2, most - first - 4, 1], "through a cache")


def _padded(tokens: Callable[[int, int], Tensor], some: int, left: bool, rows: int = ROWS) -> Way:
    ids = tokens(rows, some)
    mask = torch.ones_like(ids)
    for row, pads in enumerate(PADS[:rows]):
        mask[row, slice(0, pads) if left else slice(some - pads, some)] = 0
    return Way(f"padded on the {'left' if left else 'right'}", (Piece(ids, _count(ids), mask=mask),))


def long_padded(tokens: Callable[[int, int], Tensor], length: int) -> Way:
    """A long call that is padded: what is formed of a mask may be other code than what is formed without one."""
    way = _padded(tokens, length, left=True, rows=2)
    return replace(way, name=f"{way.name}, in a call of {length} tokens")


def _rows(tokens: Callable[[int, int], Tensor], most: int) -> Way:
    """Rows whose positions start and go up otherwise."""
    length = max(4, (most - 4) // 3)
    ids = tokens(ROWS, length)
    at = torch.stack([row % 4 + torch.arange(length) * (1 + row % 3) for row in range(ROWS)]).to(ids.device)
    return Way(OWN_ROWS, (Piece(ids, at, given=True),))


def _documents(tokens: Callable[[int, int], Tensor], some: int) -> Way:
    """Rows of two texts each, the second row with padding before them."""
    ids = tokens(2, some)
    which = torch.ones_like(ids)
    which[0, some // 2 :] = which[1, some - 3 :] = 2
    which[1, :2] = 0
    starts = which.diff(dim=1, prepend=which[:, :1]) != 0
    at = _count(ids) - (_count(ids) * starts).cummax(1).values
    return Way(DOCUMENTS, (Piece(ids, at, given=True, mask=which, documents=True),))


def _generating(tokens: Callable[[int, int], Tensor], most: int) -> Way:
    """As `generate` calls a padded batch: positions count the text, the mask grows."""
    first = max(4, most // 4)
    ids = tokens(3, first + 2)
    mask = torch.ones_like(ids)
    for row, pads in enumerate(PADS[:3]):
        mask[row, : min(pads, first - 2)] = 0
    at = (mask.cumsum(1) - 1).clamp(min=0)
    ends = [first, first + 1, first + 2]
    pieces = [
        Piece(ids[:, start:end].clone(), at[:, start:end], given=True, mask=mask[:, :end])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    return Way("padded on the left, through a cache", tuple(pieces))


def _long(tokens: Callable[[int, int], Tensor], declared: int | None, original: int | None, caches: bool) -> list[Way]:
    """Calls at a length where an encoding changes, one longer, and beyond the declared length, if these are short."""
    lengths = [original, original + 1] if original else []
    lengths.append(max((declared or original or 0) + 8, 4 * MOST))
    found = [one_call(tokens, length) for length in dict.fromkeys(min(n, LONGEST) for n in lengths)]
    if caches:
        found[-1] = long_call(tokens, found[-1].last + 1)
    return found


def one_call(tokens: Callable[[int, int], Tensor], length: int) -> Way:
    ids = tokens(1, length)
    return Way(f"in a call of {length} tokens", (Piece(ids, _count(ids)),))


def long_call(tokens: Callable[[int, int], Tensor], length: int) -> Way:
    return _through(tokens(1, length + ON), [length, 1, ON - 2, 1], f"in a call of {length} tokens{AND_ON}")


def _far(tokens: Callable[[int, int], Tensor], length: int, on: bool = False) -> Way:
    """A few tokens that stand at the end of so many; ``on``: some of them one by one, through a cache."""
    ids, name, lengths = tokens(1, 8), f"at the end of {length} positions", [6, 1, 1] if on else [8]
    parts = zip(ids.split(lengths, 1), _count(ids, length - 8).split(lengths, 1), strict=True)
    return Way(name + AND_ON * on, tuple(Piece(part.clone(), at, given=True) for part, at in parts))


def _through(ids: Tensor, lengths: list[int], name: str) -> Way:
    pieces = zip(ids.split(lengths, 1), _count(ids).split(lengths, 1), strict=True)
    return Way(name, tuple(Piece(part.clone(), at) for part, at in pieces))


def called(subject: Running, way: Way, learned: Learned, within: Collection[str] = ()) -> Called:
    """The tape of a way, read. The model is left as it was. ``learned`` as in `sites_of`, ``within`` as in `record`."""
    tape = recorded(subject, way, within)
    if isinstance(tape, str):
        return Called(way, why_not=tape)
    sites = sites_of(tape, learned)
    if within and not sites:  # of inputs to these modules alone nothing says that they are data
        return called(subject, way, learned)
    return Called(way, tuple(_turned(way, sites)), sites=tuple(sites), tape=tape)


def recorded(subject: Running, way: Way, within: Collection[str] = ()) -> Tape | str:
    """The tape of a way, or why there is none."""
    try:
        with left_alone(subject.model), quiet(), torch.no_grad():
            for piece in way.before:
                _run(subject, Way("before", (piece,)))
            contents = [piece.tokens for piece in way.pieces]
            tape = record(partial(_in_state, subject, way), subject.whole, contents, places=False, within=within)
    except NotChecked as reason:
        return str(reason)
    except ERRORS as error:
        return _cannot(error)
    if tape.raised is None:
        return tape
    return str(tape.raised) if isinstance(tape.raised, NotChecked) else _cannot(tape.raised)


def _cannot(error: BaseException) -> str:
    return f"the model cannot be run so: {type(error).__name__}: {first_line(error):.160}"


def _in_state(subject: Running, way: Way) -> None:
    """Its calls, under autocast or with gradients where it says so."""
    kind = next(subject.model.parameters()).device.type
    with torch.autocast(kind, torch.bfloat16, enabled=way.autocast), torch.set_grad_enabled(way.training):
        if way.training:
            train(subject.model)
        _run(subject, way)


def train(model: nn.Module) -> None:
    """In training mode, without what is left to chance, counted over a batch or computed again."""
    model.train()
    for module in model.modules():
        for name, value in vars(module).items():
            if type(value) is float and (CHANCE.search(name) or isinstance(module, _DropoutNd)):
                setattr(module, name, 0.0)
        if isinstance(module, _NormBase):
            module.eval()
        if "gradient_checkpointing" in vars(module):  # which some forwards ask of the instance
            vars(module)["gradient_checkpointing"] = False


def _run(subject: Running, way: Way) -> None:
    dtype = next(p.dtype for p in subject.model.parameters() if p.is_floating_point())
    calls = [(piece.tokens, piece.positions if piece.given else None, piece.mask_in(dtype)) for piece in way.pieces]
    if len(calls) > 1:
        deque(subject.through_cache(calls, static=way.static), maxlen=0)
    else:
        tokens, positions, mask = calls[0]
        subject.run(tokens, positions, embedded=way.embedded, attention_mask=mask)


def _turned(way: Way, sites: Sequence[Site]) -> Iterator[Turned]:
    of_module: dict[str, list[Site]] = {}
    for site in sites:
        of_module.setdefault(site.where, []).append(site)
    calls = len(way.pieces)
    positions = [piece.positions.cpu() for piece in way.pieces]
    live = [piece.live.cpu() for piece in way.pieces]
    longest = [torch.full((at.shape[1],), int(at.max()) + 1) for at in positions]
    for where, there in of_module.items():
        if len(there) % calls:
            continue  # not each call reaches it
        each = len(there) // calls
        for i, site in enumerate(there):
            call, number = divmod(i, each)
            full = call == calls - 1  # before it a static cache holds rows that nothing was written to
            for side, first in ((site.q, call), (site.k, 0))[: 2 if full or not way.static else 1]:
                at, alive, length = (torch.cat(x[first : call + 1], -1) for x in (positions, live, longest))
                yield Turned(way, call, where, side.name, at, number, site, side, alive, length)
