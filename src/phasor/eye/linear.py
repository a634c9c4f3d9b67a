"""Stretches of a tape that are linear in what they start from: walked backwards, and replayed in float64.

An operation is judged by trying it: nothing here knows what rotary code looks like, or how it is spelled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .tape import Operation, Ref, Tape, mapped, upstream, write_back

# What brings channels or tokens together in a learned way ends every stretch.
MIXES = {
    "mm", "addmm", "linear", "bmm", "baddbmm", "matmul", "convolution", "conv1d", "embedding", "mkldnn_rnn_layer",
    "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "_fused_rms_norm", "native_batch_norm",
    "cumsum", "_thnn_fused_lstm_cell", "mv", "addmv", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math", "flex_attention",
}  # fmt: skip
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
NORMS = {"native_layer_norm", "native_group_norm", "_fused_rms_norm"}
# They move elements and change none, so that a cut before one says what a cut after it says.
MOVES = {
    "view", "_unsafe_view", "reshape", "expand", "slice", "select", "unsqueeze", "squeeze", "transpose", "permute", "t",
    "clone", "_to_copy", "alias", "detach", "split", "split_with_sizes", "chunk", "unbind", "contiguous", "unfold",
    "view_as_real", "view_as_complex", "squeeze_", "unsqueeze_",
}  # fmt: skip
KEEPS_NUMBERS = MOVES | {"cat", "stack", "copy_", "where", "masked_fill", "constant_pad_nd", "neg", "index"}
MOST_OPERATIONS = 240  # of one stretch
FAR = (2.0**40, 2.0**-40)  # what cuts off values is linear between its bounds; powers of two change no rounding


@dataclass(frozen=True)
class Cut:
    """A set of values from which a target follows linearly, and the operations between.

    ``factor``: by what the operations multiply everything, in plain numbers: a softmax scale written into the queries.
    ``trained``: the part of it that weights are.
    """

    sources: tuple[int, ...]
    operations: tuple[Operation, ...]
    factor: float = 1.0
    trained: float = 1.0


@dataclass(frozen=True)
class Walk:
    """All cuts behind a target, nearest first, and the values where the walk was ``stopped``."""

    target: int
    cuts: tuple[Cut, ...]
    stopped: tuple[int, ...]


def mixes(tape: Tape, operation: Operation) -> bool:
    """Whether an operation ends a stretch: a projection, a convolution, a softmax, or a product with other data.

    A product with a matrix that is no weight may be a rotation.
    """
    if operation.name not in PRODUCTS:
        return operation.name in MIXES
    factors = operation.inputs[-2:]
    others = [i for i in factors if i not in tape.data]
    if len(others) != 1 or len(operation.inputs) > 2:
        return True
    root = others[0]
    while (maker := tape.maker(root)) is not None and maker.name in MOVES and maker.inputs:
        root = maker.inputs[0]
    return root in tape.weights


class Linearity:
    """Which operations of a tape are linear in what depends on the data; each kind is tried once."""

    def __init__(self, tape: Tape, known: dict[Any, bool] | None = None) -> None:
        """``known``: what was found of earlier tapes of the same model, and of this one."""
        self.tape = tape
        self._known: dict[Any, bool] = {} if known is None else known

    def __call__(self, operation: Operation, output: int) -> bool:
        if operation.func is write_back:
            return True
        if mixes(self.tape, operation):
            return False
        if operation.name in MOVES and all(self._plain(i) for i in (operation.inputs[0], output)):
            return True
        key = (operation.func, output - (operation.outputs[0] or 0), self._kind(operation))
        if key not in self._known:
            self._known[key] = self._tried(operation, output)
        return self._known[key]

    def _plain(self, number: int) -> bool:
        return self.tape.is_float(number) and not self.tape.values[number].is_nested

    def _kind(self, operation: Operation) -> Any:
        def kind(value: Any) -> Any:
            if not isinstance(value, Ref):
                return repr(value)
            tensor = self.tape.values[value.number]
            return (tensor.ndim, tensor.numel() > 1, tensor.dtype, value.number in self.tape.data)

        return repr([mapped(kind, a) for a in (operation.args, operation.kwargs)])

    def _tried(self, operation: Operation, output: int) -> bool:
        tape = self.tape
        sources = sorted({i for i in operation.inputs if i in tape.data})
        if not all(tape.is_float(i) for i in sources):
            return False
        if any(tape.values[i].is_nested for i in (*operation.inputs, output)):
            return False  # it has no shape of its own
        made = torch.Generator().manual_seed(0)

        def noise(i: int) -> Tensor:
            kind = torch.complex128 if tape.values[i].is_complex() else torch.float64
            return torch.randn(tape.values[i].shape, dtype=kind, generator=made)

        def f(xs: list[Tensor]) -> Tensor:
            return replay(tape, (operation,), dict(zip(sources, xs, strict=True)), output)

        a, b = [noise(i) for i in sources], [noise(i) for i in sources]
        try:
            if f([torch.zeros_like(x) for x in a]).abs().max() > 0:
                return False
            both = f([x + y for x, y in zip(a, b, strict=True)])
            apart = f(a) + f(b)
            alike = torch.allclose(apart, both, rtol=1e-9, atol=1e-9 * float(both.abs().max()) + 1e-300)
            return alike and all(torch.equal(f([x * much for x in a]), f(a) * much) for much in FAR)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):  # or it is no number at all
            return False


def walk(tape: Tape, linear: Linearity, target: int) -> Walk:
    """Backwards from a value, through everything that is linear."""
    pending, stopped, done = {target}, set[int](), list[Operation]()
    cuts: list[Cut] = []
    factor = trained = 1.0
    while len(done) < MOST_OPERATIONS and pending - stopped:
        number = max(pending - stopped)
        operation = tape.maker(number)
        if operation is None or not linear(operation, number):
            stopped.add(number)
            continue
        if len(pending) == 1 and (times := plain_factor(tape, operation)) != 1:
            factor *= times
            trained *= times if _of_weights(tape, operation) else 1.0
        pending.discard(number)
        if operation not in done:
            done.append(operation)
        pending.update(i for i in operation.inputs if i in tape.data)
        if not pending:
            break
        if all(tape.values[i].is_floating_point() for i in pending):
            cuts.append(Cut(tuple(sorted(pending)), tuple(done), factor, trained))
    return Walk(target, tuple(cuts), tuple(sorted(stopped, reverse=True)))


def plain_factor(tape: Tape, operation: Operation) -> float:
    """The number by which an operation multiplies everything, written once or often; 1 where it does otherwise."""
    if operation.name not in ("mul", "mul_", "div", "div_"):
        return 1.0
    others = [a for a in operation.args if not (isinstance(a, Ref) and a.number in tape.data)]
    if len(others) != 1:
        return 1.0
    value = tape.values[others[0].number] if isinstance(others[0], Ref) else others[0]
    if isinstance(value, Tensor):
        if not value.numel() or value.is_complex() or (value != value.reshape(-1)[0]).any():
            return 1.0
        value = value.reshape(-1)[0].item()
    if not isinstance(value, int | float) or not value:
        return 1.0
    return float(value) if operation.name.startswith("mul") else 1.0 / float(value)


def _of_weights(tape: Tape, operation: Operation) -> bool:
    others = [i for i in operation.inputs if i not in tape.data]
    return any(i in tape.weights for i in upstream(tape, others))


def replay(tape: Tape, operations: Sequence[Operation], given: dict[int, Tensor], target: int) -> Tensor:
    """A value of the tape, computed anew in float64 from ``given`` values; casts on the way are left out."""
    known = dict(given)

    def value(argument: Any) -> Any:
        if isinstance(argument, Ref):
            number = argument.number
            return known[number] if number in known else _wide(tape.values[number])
        return _wide_dtype(argument)

    for operation in sorted(operations, key=lambda o: o.index):
        args = mapped(value, operation.args)
        kwargs = mapped(value, operation.kwargs)
        out = _run(operation, list(args), kwargs)
        outs = out if isinstance(out, tuple | list) else (out,)
        for number, result in zip(operation.outputs, outs, strict=True):
            if number is not None and number not in given:
                known[number] = result
    return known[target]


def _run(operation: Operation, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if operation.name in ("view", "_unsafe_view"):  # what is replayed may have other strides
        return args[0].reshape(args[1]) if not isinstance(args[1], torch.dtype) else args[0].view(args[1])
    if operation.name == "detach":  # its gradient is looked at elsewhere; its values follow from what goes in
        return args[0]
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory", "non_blocking")}
    if operation.writes and args:  # the tape itself is never written into
        args[0] = [a.clone() for a in args[0]] if isinstance(args[0], list) else args[0].clone()
        if isinstance(args[0], Tensor) and any(isinstance(a, Tensor) and a.requires_grad for a in args):
            args[0] = args[0] + 0
    return operation.func(*args, **kwargs)


def _wide(value: Tensor) -> Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def _wide_dtype(argument: Any) -> Any:
    if isinstance(argument, torch.dtype):
        return torch.complex128 if argument.is_complex else torch.float64 if argument.is_floating_point else argument
    return argument


def gradients(y: Tensor, xs: Sequence[Tensor], seeds: Tensor) -> Tensor:
    """``[seeds, inputs]``: each row of seeds times the Jacobian of ``y`` by all of ``xs``, one after the other."""
    many = seeds.reshape(len(seeds), *y.shape)
    try:
        found = torch.autograd.grad(y, xs, many, is_grads_batched=True, allow_unused=True, retain_graph=True)
    except (RuntimeError, NotImplementedError):  # an operation that vmap does not know
        rows = [torch.autograd.grad(y, xs, seed, allow_unused=True, retain_graph=True) for seed in many]
        found = tuple(None if g[0] is None else torch.stack(g) for g in zip(*rows, strict=True))  # type: ignore[misc]
    count = len(seeds)
    return torch.cat(
        [
            torch.zeros(count, x.numel(), dtype=torch.float64) if g is None else g.reshape(count, -1)
            for g, x in zip(found, xs, strict=True)
        ],
        dim=1,
    )


def single_sources(tape: Tape, target: int, most: int = 40) -> Iterator[tuple[int, list[Operation]]]:
    """Values through which all goes that reaches ``target`` from the data, nearest first, and what lies between."""
    pending, between = {target}, list[Operation]()
    while pending and len(between) < most:
        if len(pending) == 1 and between:
            yield next(iter(pending)), list(between)
        number = max(pending)
        pending.discard(number)
        operation = tape.maker(number)
        if operation is None:
            return
        if operation not in between:
            between.append(operation)
        pending.update(i for i in operation.inputs if i in tape.data)
