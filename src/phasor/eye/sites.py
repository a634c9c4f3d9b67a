"""One recorded call of a model, attention by attention: what was seen on q, k, v and the output of each."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch import Tensor

from .attention import attentions
from .frequencies import Frequencies, NotExplained, frequencies
from .grid import Grid, grids
from .layout import Placed, placed
from .linear import MOVES, mixes
from .matrices import NoRotation
from .operator import Operator
from .place import Where, where_of
from .tape import Attention, Operation, Tape, upstream
from .turning import Eye, Learned, Seen

NOTHING = Seen(fixed=True)
MULTIPLY = {"mul", "mul_", "div", "div_", "addcmul", "bmm", "baddbmm", "mm", "addmm"}


@dataclass(frozen=True, eq=False)
class Side:
    """One of q, k, v and the output of an attention: what is ``seen``, when it is first asked for, and what follows."""

    tape: Tape
    look: Callable[[], Seen]
    name: str

    @cached_property
    def seen(self) -> Seen:
        return self.look()

    @property
    def operator(self) -> Operator | None:
        return self.seen.operator

    @cached_property
    def turns(self) -> bool:
        """Whether its pairs turn; where their members do by angles of their own, these must be of several axes."""
        if self.operator is None or self.operator.second is None:
            return self.seen.turns
        return isinstance(self.frequencies, Frequencies) and len(self.frequencies.coordinates) > 1

    @cached_property
    def frequencies(self) -> Frequencies | str:
        """How each pair turns, or why that is not known."""
        if self.operator is None or not self.operator.turns:
            return self.seen.missing or "nothing turns"
        try:
            return frequencies(self.tape, self.operator.members())
        except NotExplained as reason:
            return str(reason)

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """Where its tokens stand, as its angles show: the lines, pictures and clips among them."""
        return grids(self.tape, self.operator) if self.operator is not None and self.turns else ()

    @cached_property
    def placed(self) -> Placed | None:
        return None if self.operator is None or not self.operator.turns else placed(self.operator)

    @cached_property
    def trained(self) -> bool:
        """Whether weights multiply on the way: a factor that training chose. Weights that are all 1 choose none."""
        operations, values = (self.operator.operations if self.operator is not None else ()), self.tape.values
        constants = {i for o in operations for i in o.inputs if i not in self.tape.data}
        chosen = (i for i in constants if any(w in self.tape.weights for w in upstream(self.tape, [i])))
        return any(bool((values[i] != 1).any() and (values[i] != 0).any()) for i in chosen)

    @cached_property
    def place(self) -> Where | None:
        """Where in Python the rotation stands."""
        return None if self.seen.operator is None else where_of(self.seen.operator.operations)


@dataclass(frozen=True, eq=False)
class Site:
    """One attention. ``where``: its module; ``number``: which one inside it; ``how``: by what it was found."""

    where: str
    number: int
    attention: Attention
    q: Side
    k: Side
    v: Side
    output: Side

    @property
    def sides(self) -> tuple[Side, ...]:
        return self.q, self.k, self.v, self.output

    @property
    def turning(self) -> tuple[str, ...]:
        """The names of the sides that turn."""
        return tuple(side.name for side in self.sides if side.turns)

    @property
    def heads(self) -> int:
        """Query heads: those of ``[batch, heads, tokens, channels]`` before they are folded into one axis."""
        tape, number = self.q.tape, self.attention.q
        tokens = tape.values[number].shape[-2]
        while tape.values[number].ndim != 4 and (maker := tape.maker(number)) is not None and maker.name in MOVES:
            number = maker.inputs[0]
        shape = tape.values[number].shape
        if len(shape) == 4 and tokens in shape[1:3]:
            return int(shape[1] if shape[2] == tokens else shape[2])
        operator = self.q.operator or self.k.operator
        return 1 if operator is None else int(operator.cos.shape[0])

    @property
    def tokens(self) -> tuple[int, int]:
        """Of the queries and of the keys."""
        seen, tape = self.attention, self.q.tape
        q, k = tape.values[seen.q].shape, tape.values[seen.k].shape
        return q[-1 if seen.queries_transposed else -2], k[-1 if seen.keys_transposed else -2]

    @property
    def layers(self) -> tuple[str, int]:
        """The list of modules that it stands in, and its number there: ``("model.layers", 3)``."""
        found = re.match(r"(?:(.*?)\.)?(\d+)(?:\.|$)", self.where)
        return (found[1] or "", int(found[2])) if found else ("", 0)


def sites_of(tape: Tape, learned: Learned | None = None, among: Collection[str] | None = None) -> list[Site]:
    """Every attention of a tape. One without a softmax is one only where something turns, or is not shown.

    ``learned``: what other tapes of the same model have shown; more is put there. ``among``: the modules whose
    attentions are asked for; None: all.
    """
    eye, found, count = Eye(tape, learned), list[Site](), dict[str, int]()
    for attention in attentions(tape):
        if among is not None and attention.module not in among:
            continue
        looks = {
            "q": partial(_queries, eye, attention),
            "k": partial(_seen, eye, attention.k, attention.keys_transposed),
            "v": partial(_values, eye, attention),
            "output": partial(_output, eye, attention),
        }
        sides = {name: Side(tape, look, name) for name, look in looks.items()}
        if attention.how == "a product" and not any(side.seen.turns for side in sides.values()):
            continue
        number = count[attention.module] = count.get(attention.module, -1) + 1
        found.append(Site(attention.module, number, attention, **sides))
    return found


def _seen(eye: Eye, value: int, transposed: bool) -> Seen:
    if value not in eye.tape.data:
        return Seen(missing="it does not depend on the data")
    if eye.tape.values[value].is_nested:
        return Seen(missing="it is a nested tensor, in which sequences have lengths of their own")
    shape = eye.tape.values[value].shape
    if len(shape) < 2:
        return Seen(missing="it has no axis of tokens")
    return eye.seen(value, shape[-1 if transposed else -2], transposed)


def _values(eye: Eye, attention: Attention) -> Seen:
    return NOTHING if attention.v is None else _seen(eye, attention.v, False)


def _queries(eye: Eye, attention: Attention) -> Seen:
    seen, tape = _seen(eye, attention.q, attention.queries_transposed), eye.tape
    if not seen.turns or seen.operator is None:
        return seen
    keys = tape.values[attention.k].shape[-1 if attention.keys_transposed else -2]
    try:
        return replace(seen, operator=seen.operator.of_queries(keys))
    except NoRotation as reason:
        return Seen(missing=str(reason))


def _output(eye: Eye, attention: Attention) -> Seen:
    """What happens to the result between the attention and its projection; only what multiplies can turn it."""
    tape = eye.tape
    if attention.output is None:
        return NOTHING
    reached, last, touched = {attention.output}, attention.output, False
    for operation in tape.operations[attention.at + 1 :]:
        if not reached.intersection(operation.inputs):
            continue
        if mixes(tape, operation):
            break
        touched = touched or operation.name in ("mul", "mul_", "sub", "addcmul")
        new = [o for o in operation.outputs if o is not None and tape.is_float(o)]
        reached.update(new)
        last = max([last, *(o for o in new if tape.values[o].shape[-1:] == tape.values[last].shape[-1:])])
    if not touched:
        return NOTHING
    tokens = tape.values[attention.output].shape[-2]
    seen = eye.seen(last, tokens)
    return seen if seen.turns else NOTHING


def angles_of_data(tape: Tape) -> bool:
    """Whether a sine or cosine is taken of what depends on the data: an angle that each token chooses."""
    return any(o.name in ("sin", "cos", "polar") and tape.data.intersection(o.inputs) for o in tape.operations)


def multiplied_by_positions(tape: Tape, tokens: int) -> Iterator[Operation]:
    """The operations that multiply what depends on the data by numbers that differ from token to token.

    What an operation that is not of torch does with such numbers is not known: it may multiply.
    """
    for operation in tape.operations:
        own = getattr(operation.func, "namespace", "aten") != "aten"
        if not own and operation.name not in MULTIPLY:
            continue
        if not tape.data.intersection(operation.inputs):
            continue
        for number in set(operation.inputs) - tape.data - tape.weights:
            if tape.is_float(number) and varies(tape.values[number], tokens):
                yield operation


def varies(value: Tensor, tokens: int) -> bool:
    """Whether a value differs from token to token: along an axis as long as there are tokens.

    >>> import torch
    >>> varies(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), 2), varies(torch.ones(2, 3), 2)
    (True, False)
    """
    axes = [axis for axis, size in enumerate(value.shape) if size == tokens]
    return any(bool((value != value.narrow(axis, 0, 1)).any()) for axis in axes)
