"""One forward pass as a tape: every operation with its values, its module, and its place in Python.

A dispatch mode sees each operation of ATen; a function mode sees scaled dot product attention before it is taken apart.
Values are numbered in the order in which they appear. A tensor that is written into has a new number afterwards, and
so has every other tensor over the same memory that the write has changed: the write is an operation of its own.
"""

import sys
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_hop
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

View = tuple[tuple[int, ...], tuple[int, ...], int]  # size, strides, offset
# Files whose frames are not the model's own code; what was typed into a console is.
NOT_THE_MODELS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<frozen", "<eval_with_key>")
SMALL = 1 << 16  # elements: a larger weight of an accelerator stays there, since only projections have such
DEEPEST = 24  # frames kept of each operation's stack
SDPA = torch._C._nn.scaled_dot_product_attention  # by itself: others put wrappers in its place in torch.nn.functional
UNWRITTEN = ("empty", "new_empty")  # operations of ATen whose result has no values yet


@dataclass(frozen=True)
class Ref:
    """A value of the tape in the arguments of an operation."""

    number: int


class Place(NamedTuple):
    """A line in Python."""

    code: types.CodeType
    line: int


@dataclass(eq=False)
class Operation:
    """``inputs`` and ``outputs``: numbers of values (None: an output that is no tensor); ``stack``: innermost first."""

    index: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...] = ()
    module: str = ""
    stack: tuple[Place, ...] = ()

    @cached_property
    def name(self) -> str:
        """Without its overload: ``"mul"``."""
        schema = getattr(self.func, "_schema", None)
        return str(schema.name.split("::")[1] if schema is not None else self.func.__name__)

    @property
    def writes(self) -> bool:
        schema = getattr(self.func, "_schema", None)
        return schema is not None and bool(schema.is_mutable)


@dataclass(frozen=True)
class Attention:
    """A product of queries and keys: numbers of values. ``keys_transposed``, ``queries_transposed``: ``[..., channels,
    tokens]``.

    ``scale``: what multiplies the product, where the call says it; ``softmax``: the value that its softmax is given.
    ``at``: the operation after which its output is there.
    """

    q: int
    k: int
    v: int | None
    output: int | None
    module: str
    at: int
    keys_transposed: bool = False
    queries_transposed: bool = False
    scale: float | None = None
    how: str = "scaled dot product"
    softmax: int | None = None


@dataclass
class Tape:
    """Operations and values of one call. ``data``: numbers of the values that depend on the tokens' contents.

    ``weights``: those that are parameters. ``inside_attention``: operations from, to, of fused calls taken apart.
    ``raised``: what ended the call. ``ids``: the newest number of each tensor by its id, of those that still live.
    ``grids``: those that its angles were found to stand on.
    """

    operations: list[Operation] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    makers: list[Operation | None] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)
    data: set[int] = field(default_factory=set)
    weights: set[int] = field(default_factory=set)
    raised: Exception | None = None
    inside_attention: list[tuple[int, int]] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    grids: dict[Any, Any] = field(default_factory=dict)

    def maker(self, number: int) -> Operation | None:
        return self.makers[number]

    def is_float(self, number: int) -> bool:
        value = self.values[number]
        return value.is_floating_point() or value.is_complex()


def record(
    call: Callable[[], Any],
    model: nn.Module | None,
    contents: list[Tensor],
    places: bool = True,
    within: Collection[str] = (),
    copied: bool = True,
) -> Tape:
    """The tape of ``call()``. ``contents``: input tensors that say what the tokens are, not where they stand.

    ``places``: whether to note where in Python each operation stands, which takes a third of the time. ``within``: the
    modules whose operations alone are recorded; by default all. What is projected there is taken for data.
    ``copied``: values may be written into where no mode sees it; in what is known not to, they are not copied.

    Without gradients; ``model`` names the modules. What ``call`` raises ends the tape, which keeps it.
    """
    tape = Tape()
    names = {module: name for name, module in model.named_modules()} if model is not None else {}
    recorder = _Recorder(tape, contents, places, frozenset(within), copied)
    with ExitStack() as inside:
        inside.callback(recorder.forget)
        enter = register_module_forward_pre_hook(lambda module, _: recorder.enter(names.get(module, "")))
        inside.callback(enter.remove)
        leave = register_module_forward_hook(lambda module, _, out: recorder.leave(), always_call=True)
        inside.callback(leave.remove)
        inside.enter_context(torch.no_grad())
        inside.enter_context(_Calls(recorder))
        inside.enter_context(recorder)
        try:
            call()
        except Exception as error:
            tape.raised = error
    _mark_data(tape, recorder.roots)
    return tape


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """``function`` of each argument in lists, tuples and dictionaries; as `tree_map`, in a fifth of the time."""
    if type(value) in (list, tuple):
        return type(value)([mapped(function, v) for v in value])
    return {k: mapped(function, v) for k, v in value.items()} if type(value) is dict else function(value)


class _Recorder(TorchDispatchMode):
    def __init__(self, tape: Tape, contents: list[Tensor], places: bool, within: frozenset[str], copied: bool) -> None:
        super().__init__()
        self.tape, self.modules, self.places, self.within, self.copied = tape, [""], places, within, copied
        self.inside = 0 if within else 1  # how deep in modules that are recorded
        self._numbers = tape.ids
        self._alive: list[Tensor] = []  # so that no id is used twice
        self._over: dict[int, list[Tensor]] = {}  # memory -> tensors over it
        self._lent: set[int] = set()  # values that are the tensor itself, not a copy
        self._weights: set[int | None] = set()  # memory of parameters, of which views are no copies either
        self.roots = {self.number(t) for t in contents}

    def enter(self, module: str) -> None:
        self.modules.append(module)
        self.inside += module in self.within

    def leave(self) -> None:
        if len(self.modules) > 1:
            self.inside -= self.modules.pop() in self.within

    def forget(self) -> None:
        self._alive.clear()
        self._over.clear()

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor's newest value; one that no operation made is a value from now on."""
        known = self._numbers.get(id(tensor))
        return self._add(tensor, None) if known is None else known

    def _add(self, tensor: Tensor, maker: Operation | None) -> int:
        number = len(self.tape.values)
        here = tensor.is_cpu or tensor.is_meta
        known = not self.copied or maker is None or _memory(tensor) in self._weights
        lend = known and (here or tensor.numel() > SMALL)  # not copied before something writes into it
        value = tensor.detach()
        self.tape.values.append(value if lend or tensor.is_meta else value.clone() if here else value.cpu())
        self.tape.makers.append(maker)
        if lend:
            self._lent.add(number)
        if isinstance(tensor, nn.Parameter):
            self.tape.weights.add(number)
            self._weights.add(_memory(tensor))
        if id(tensor) not in self._numbers:
            self._alive.append(tensor)
            if (memory := _memory(tensor)) is not None:
                self._over.setdefault(memory, []).append(tensor)
        self._numbers[id(tensor)] = number
        return number

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {}, func) if self.inside else func(*args, **(kwargs or {}))

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        inputs: list[int] = []

        def ref(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            inputs.append(self.number(value))
            return Ref(inputs[-1])

        kept_args, kept_kwargs = mapped(ref, args), mapped(ref, kwargs)
        schema = getattr(func, "_schema", None)
        if writes := schema is not None and schema.is_mutable:
            self._own_copies(tree_leaves((args, kwargs)))
        out = call(*args, **kwargs)
        if func.__name__.startswith(UNWRITTEN):
            out.zero_()  # else what is done to it later is judged with whatever the memory held
        stack = _stack() if self.places else ()
        operation = Operation(
            len(self.tape.operations), func, kept_args, kept_kwargs, tuple(inputs), (), self.modules[-1], stack
        )
        self.tape.operations.append(operation)
        outs = out if isinstance(out, tuple | list) else (out,)
        operation.outputs = tuple(self._add(o, operation) if isinstance(o, Tensor) else None for o in outs)
        if writes:
            for written in [o for o in outs if isinstance(o, Tensor)]:
                self._spread(written, operation)
        return out

    def _own_copies(self, values: list[Any]) -> None:
        """Copies of lent values over memory that is about to be written into."""
        for memory in {_memory(v) for v in values if isinstance(v, Tensor)} - {None}:
            for tensor in self._over.get(memory, ()):  # type: ignore[arg-type]
                number = self._numbers[id(tensor)]
                if number in self._lent:
                    self.tape.values[number] = self.tape.values[number].clone()
                    self._lent.discard(number)

    def _spread(self, written: Tensor, by: Operation) -> None:
        """A write through one view is a new value of every tensor over the same cells, whatever was there before."""
        part = self._numbers[id(written)]
        for whole in list(self._over.get(_memory(written) or 0, ())):
            before = self._numbers[id(whole)]
            views = (_view(whole), _view(written))
            if whole is written or not _overlap(*views):
                continue
            operation = Operation(
                len(self.tape.operations), write_back, (Ref(before), Ref(part), *views), {}, (before, part), (),
                by.module, by.stack,
            )  # fmt: skip
            self.tape.operations.append(operation)
            operation.outputs = (self._add(whole, operation),)


class _Calls(TorchFunctionMode):
    """Notes every call of scaled dot product attention with the q, k and v that it is given."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.recorder.inside:
            return func(*args, **kwargs)
        if func is flex_attention_hop:
            return self._flex(*args, **kwargs)
        if func is not SDPA:
            return func(*args, **kwargs)
        recorder, tape = self.recorder, self.recorder.tape
        given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        q, k, v = (recorder.number(given[name]) for name in ("query", "key", "value"))
        begin = len(tape.operations)
        out = func(*args, **kwargs)
        tape.inside_attention.append((begin, len(tape.operations)))
        at, output = len(tape.operations) - 1, recorder.number(out)
        tape.attentions.append(Attention(q, k, v, output, recorder.modules[-1], at, scale=_scale(given)))
        return out

    def _flex(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
        """FlexAttention is one operation: a dispatch mode has no rule for its functions of scores."""
        recorder, tape = self.recorder, self.recorder.tape

        def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
            with _disable_current_modes():
                return flex_attention_hop(q, k, v, *rest, **kwargs)

        out = recorder.run(flex_attention_hop, (q, k, v), {}, call)
        given = recorder.number(q), recorder.number(k), recorder.number(v)
        at, scale = len(tape.operations) - 1, rest[2]  # after the function of scores and the mask
        scores = Attention(*given, recorder.number(out[0]), recorder.modules[-1], at, scale=float(scale))
        tape.attentions.append(replace(scores, how="flex attention"))
        return out


def _scale(given: dict[str, Any]) -> float:
    scale = given.get("scale")
    return float(given["query"].shape[-1]) ** -0.5 if scale is None else float(scale)


def _mark_data(tape: Tape, roots: set[int]) -> None:
    """What depends on the tokens' contents: what is computed of them in floating point, views of them, projections."""
    tape.data = set(roots)
    for operation in tape.operations:
        if operation.name.startswith(("new_", "empty", "zeros", "ones", "full", "rand")):
            continue  # only a shape depends on its input
        projected = operation.name in ("mm", "addmm") and any(_is_matrix(tape, i) for i in operation.inputs)
        if projected or any(i in tape.data for i in operation.inputs):
            tape.data.update(
                o for o in operation.outputs if o is not None and (tape.is_float(o) or operation.name in SAME_NUMBERS)
            )


def _is_matrix(tape: Tape, number: int) -> bool:
    """Whether a value is a matrix of weights, as it is, moved or cast: what it projects is of the contents."""
    while (maker := tape.maker(number)) is not None and maker.name in SAME_NUMBERS and len(maker.inputs) == 1:
        number = maker.inputs[0]
    return number in tape.weights and tape.values[number].ndim == 2 and min(tape.values[number].shape) > 1


# Of token ids these give token ids again; what else is computed of them (a mask, a count) says where tokens stand.
SAME_NUMBERS = {
    "view", "_unsafe_view", "reshape", "expand", "slice", "select", "unsqueeze", "squeeze", "transpose", "permute", "t",
    "clone", "_to_copy", "cat", "alias", "detach", "split", "chunk", "index_select", "where", "masked_fill", "flatten",
    "lift_fresh", "roll", "pad", "constant_pad_nd", "clamp", "clamp_min",
}  # fmt: skip


def _stack() -> tuple[Place, ...]:
    """Where the model's own code stands: frames outside torch and this wing, innermost first."""
    frame, places = sys._getframe(2), list[Place]()
    while frame is not None and len(places) < DEEPEST:
        code = frame.f_code
        if not code.co_filename.startswith(NOT_THE_MODELS):
            places.append(Place(code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(places)


def _memory(tensor: Tensor) -> int | None:
    if tensor.is_meta or type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
        return None
    return tensor.untyped_storage().data_ptr() or None


def _overlap(a: View, b: View) -> bool:
    """Whether two strided tensors over the same memory have a cell in common.

    >>> x = torch.zeros(4)
    >>> _overlap(_view(x[::2]), _view(x[1::2])), _overlap(_view(x[1:]), _view(x[:2]))
    (False, True)
    """
    first, last = zip(*(_ends(*view) for view in (a, b)), strict=True)
    if max(first) > min(last):
        return False
    marks = torch.zeros(max(last) - min(first) + 1, dtype=torch.bool)
    mine, theirs = (  # cells that an expanded axis repeats, once
        marks.as_strided([n if step else 1 for n, step in zip(size, stride, strict=True)], stride, offset - min(first))
        for size, stride, offset in (a, b)
    )
    mine.fill_(True)
    return bool(theirs.any())


def _ends(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> tuple[int, int]:
    """The first and the last cell; none for a tensor without elements."""
    if 0 in size:
        return 0, -1
    return offset, offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))


def _view(tensor: Tensor) -> View:
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())


def write_back(whole: Tensor, part: Tensor, view_of_whole: Any, view_of_part: Any) -> Tensor:
    """``whole`` after ``part`` was written through another view of its memory.

    >>> x = torch.zeros(4)
    >>> write_back(x, torch.ones(2), _view(x), _view(x[1::2])).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    mine, theirs = _cells(*view_of_whole), _cells(*view_of_part)
    order = mine.argsort()
    at = order[torch.searchsorted(mine[order], theirs).clamp(max=len(mine) - 1)]
    shared = mine[at] == theirs
    return whole.reshape(-1).index_put((at[shared],), part.reshape(-1)[shared].to(whole.dtype)).reshape(whole.shape)


def _cells(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor:
    """Places in memory of the elements of a strided tensor, in order."""
    at = torch.tensor(offset)
    for count, step in zip(size, stride, strict=True):
        at = at[..., None] + torch.arange(count) * step
    return at.reshape(-1)


def upstream(tape: Tape, numbers: Iterator[int] | set[int] | list[int], without: Collection[int] = ()) -> Iterator[int]:
    """The values from which these were computed, themselves first, each once; not those behind ``without``."""
    pending = sorted({*numbers} - {*without})
    seen = {*pending, *without}
    while pending:
        number = pending.pop()
        yield number
        maker = tape.maker(number)
        for i in maker.inputs if maker is not None else ():
            if i not in seen:
                seen.add(i)
                pending.append(i)
