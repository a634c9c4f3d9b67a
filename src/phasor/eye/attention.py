"""Every attention of a tape: where queries meet keys, whether by a fused call, by a softmax, or without one."""

from dataclasses import replace

from .tape import Attention, Operation, Tape

PRODUCTS = {"bmm", "baddbmm"}
ENDS = {"mm", "addmm", "linear", "embedding", "convolution"}
DEEPEST = 18  # operations between a product and its softmax


def attentions(tape: Tape) -> list[Attention]:
    """In the order in which they run: each product of two values that depend on the data, but for that with v."""
    found = [a for a in tape.attentions if {a.q, a.k} <= tape.data]
    weights: set[int] = set()  # values behind a softmax
    products: dict[Operation, Operation] = {}  # product of q and k -> its softmax
    for operation in tape.operations:
        if _inside(tape, operation):
            continue
        if "softmax" in operation.name and operation.inputs and operation.inputs[0] in tape.data:
            product = _product_above(tape, operation.inputs[0])
            if product is not None:
                products[product] = operation
                weights.update(o for o in operation.outputs if o is not None)
        elif "scaled_dot_product" in operation.name:
            q, k, v = operation.inputs[:3]
            found.append(Attention(q, k, v, operation.outputs[0], operation.module, operation.index))
        elif operation.name not in PRODUCTS and weights.intersection(operation.inputs):
            weights.update(o for o in operation.outputs if o is not None)
    for product, softmax in products.items():
        q, k = product.inputs[-2:]
        weighing = _next_product(tape, softmax, weights)
        values = None if weighing is None else weighing.inputs[-1]
        output = None if weighing is None else weighing.outputs[0]
        at = softmax.index if weighing is None else weighing.index
        scores = Attention(q, k, values, output, product.module, at, keys_transposed=True, softmax=softmax.inputs[0])
        found.append(replace(scores, how="a softmax over a product"))
    found += _without_softmax(tape, weights, set(products))
    return sorted(found, key=lambda a: a.at)


def _inside(tape: Tape, operation: Operation) -> bool:
    return any(begin <= operation.index < end for begin, end in tape.inside_attention)


def _product_above(tape: Tape, number: int, depth: int = 0) -> Operation | None:
    """The product of two values of the data from which a value follows by masks and factors."""
    operation = tape.maker(number)
    if operation is None or depth > DEEPEST or operation.name in ENDS:
        return None
    if operation.name in PRODUCTS:
        return operation if all(i in tape.data for i in operation.inputs[-2:]) else None
    above = (_product_above(tape, i, depth + 1) for i in operation.inputs if i in tape.data)
    return next((product for product in above if product is not None), None)


def _next_product(tape: Tape, softmax: Operation, weights: set[int]) -> Operation | None:
    later = (o for o in tape.operations[softmax.index :] if o.name in PRODUCTS and o.inputs[-2] in weights)
    return next(later, None)


def _without_softmax(tape: Tape, weights: set[int], known: set[Operation]) -> list[Attention]:
    """Products that may be attention without a softmax: of q and k, or of q and what k and v were summed to."""
    found = []
    for operation in tape.operations:
        if operation.name not in PRODUCTS or operation in known or _inside(tape, operation):
            continue
        q, k = operation.inputs[-2:]
        if not {q, k} <= tape.data or {q, k} & weights:
            continue
        summed, state = _product_above(tape, q), _product_above(tape, k)
        one = Attention(q, k, None, None, operation.module, operation.index, how="a product")
        if summed is not None and state is None and summed.inputs[-2] not in weights:
            # [channels, tokens] of the values times [tokens, channels] of the keys, then [channels, tokens] of q
            found.append(replace(one, q=k, k=summed.inputs[-1], queries_transposed=True))
            continue
        if state is not None and state.inputs[-2] not in weights:
            k, v = state.inputs[-2:]  # [channels, tokens] of the keys times [tokens, channels] of the values
            one = replace(one, k=k, v=v)
        found.append(replace(one, output=operation.outputs[0], keys_transposed=True))
    return found
