"""Weights in files of ``torch.save``. Their pickles are looked at before torch is imported, let alone opens them.

A few bytes can say a tuple of 2**40 members, and Python visits all: each tuple may hold an earlier one twice, so ``n``
lines say ``2**n`` members; as a dictionary's key it is hashed, which visits all of them. And a million brackets are a
list nested a million times. The opcodes are followed without making anything: only how many members each object has.
"""

import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ....support.errors import first_line
from ....support.regular_files import opened
from ..stored import Stored

MAX_PICKLE = 100 * 2**20
MOST = 100_000  # a tensor's tuple has some ten members in all, some thousand objects wait, and there are no lists


def read_pickled(path: Path) -> Mapping[str, Stored]:
    """Name -> where its bytes are. Nothing is unpickled but what torch's ``weights_only`` allows.

    Raises ``ValueError`` for a file in the format before torch 1.6, which has no offsets, for anything in it that is
    not a dictionary of plain tensors, and for tensors that are not stored row by row.
    """
    check_archive(path)
    from .torch_file import stored_tensors

    return stored_tensors(path)


def check_archive(path: Path) -> None:
    """The pickle inside must be small, and the archive not compressed: nothing is read that could grow."""
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        try:
            infos = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise ValueError(
                f"{path}: must be an archive as torch.save has written since version 1.6, and is not ({error}); "
                "load it and save it again"
            ) from None
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"{path}: {info.filename:.80}: must be stored without compression or encryption")
        if info.filename.endswith("data.pkl") and info.file_size > MAX_PICKLE:
            raise ValueError(f"{path}: {info.filename:.80}: must have at most {MAX_PICKLE} bytes, got {info.file_size}")
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        for info in (info for info in infos if info.filename.endswith("data.pkl")):
            try:
                check_size(zipfile.ZipFile(file).read(info))
            except Exception as error:  # whatever zipfile and pickletools raise for damaged bytes
                raise ValueError(f"{path}: {info.filename:.80}: is not read: {first_line(error)}") from None


def check_size(data: bytes) -> None:
    """``ValueError`` for a pickle with a tuple of more than `MOST` members, those of its members included, or with more
    objects that wait for their place, or lists.

    >>> import pickle
    >>> check_size(pickle.dumps({("a", (1, 2)): [3]}))
    """
    stack: list[int | None] = []  # members of each object on the stack; None: a mark
    memo: dict[int, int] = {}
    lists = 0
    for operation, argument, _ in pickletools.genops(data):
        name = operation.name
        lists += name in ("EMPTY_LIST", "LIST")
        if len(stack) > MOST or lists > MOST:
            raise ValueError(
                f"it has more than {MOST:,} lists or objects inside one another, which no list of tensors has"
            )
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
