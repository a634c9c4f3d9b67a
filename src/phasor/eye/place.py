"""Where in Python a stretch of a tape stands: the innermost function that all of its arithmetic was called from."""

import gc
import types
from dataclasses import dataclass
from pathlib import Path

from .tape import Operation

ARITHMETIC = {"mul", "mul_", "add", "add_", "sub", "sub_", "neg", "addcmul", "bmm", "mm", "cat", "stack", "complex"}


@dataclass(frozen=True)
class Where:
    """``code`` of the function; ``function``: its qualified name; ``file``, ``line`` of the first operation there."""

    code: types.CodeType
    function: str
    file: str
    line: int
    module: str = ""

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"

    def found(self) -> types.FunctionType | None:
        """The function itself, if it still lives."""
        functions = (f for f in gc.get_referrers(self.code) if isinstance(f, types.FunctionType))
        return next(functions, None)


def where_of(operations: tuple[Operation, ...]) -> Where | None:
    """None where no Python stands behind the operations (scripted code)."""
    core = [o for o in operations if o.name in ARITHMETIC and o.stack] or [o for o in operations if o.stack]
    if not core:
        return None
    core.sort(key=lambda o: o.index)
    turning = [o for o in core if o.name not in ("cat", "stack")] or core
    common = [place.code for place in turning[0].stack]
    for operation in turning[1:]:
        here = {place.code for place in operation.stack}
        common = [code for code in common if code in here]
    if not common:
        return None
    code = common[0]
    line = next(place.line for place in turning[0].stack if place.code is code)
    return Where(code, code.co_qualname, code.co_filename, line, turning[0].module)
