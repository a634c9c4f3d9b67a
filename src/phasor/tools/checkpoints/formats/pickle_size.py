"""Whether a pickle stays small when it is opened: a few bytes can say a tuple of 2**40 members, and Python visits all.

Each tuple may hold an earlier one twice, so ``n`` lines say ``2**n`` members; as a dictionary's key it is hashed, which
visits all of them. The opcodes are followed without making anything: only how many members each object has in all.
"""

import pickletools

MOST = 100_000  # members of one tuple, counted through; a tensor's has about ten


def check_size(data: bytes) -> None:
    """``ValueError`` for a pickle in which a tuple has more than `MOST` members, those of its members included.

    >>> import pickle
    >>> check_size(pickle.dumps({("a", (1, 2)): [3]}))
    """
    stack: list[int | None] = []  # members of each object on the stack; None: a mark
    memo: dict[int, int] = {}
    for operation, argument, _ in pickletools.genops(data):
        name = operation.name
        if name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo.get(int(str(argument)), 1))
            continue
        if name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            memo[len(memo) if argument is None else int(str(argument))] = _size(stack[-1:])
            continue
        if name == "DUP":
            stack.append(stack[-1] if stack else 1)
            continue
        members = _pop(stack, operation)
        size = members + 1 if name.startswith("TUPLE") else 1
        if size > MOST:
            raise ValueError(f"a tuple in it has more than {MOST:,} members, which no list of tensors has")
        if name == "MARK":
            stack.append(None)
        else:
            stack += [size] * len(operation.stack_after)


def _pop(stack: list[int | None], operation: pickletools.OpcodeInfo) -> int:
    """Takes from the stack what an opcode takes; how many members that has."""
    before = operation.stack_before
    if pickletools.markobject not in before:
        taken = [stack.pop() for _ in before if stack]
        return _size(taken)
    members = 0
    while stack and (top := stack.pop()) is not None:
        members += top
    for _ in before[: before.index(pickletools.markobject)]:
        if stack:
            stack.pop()
    return members


def _size(taken: list[int | None]) -> int:
    return sum(one or 1 for one in taken)
