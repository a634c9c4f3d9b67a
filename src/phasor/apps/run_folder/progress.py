"""What a person sees while a model trains: how far, the loss, the speed, the time left."""

from types import TracebackType
from typing import Any


class Progress:
    """A bar on stderr, or nothing at all if not ``shown``. Lines printed meanwhile stand above it."""

    def __init__(self, name: str, first: int, steps: int, shown: bool) -> None:
        self._bar: Any = None
        if not shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(name, total=steps, completed=first, said="")

    def advance(self, loss: float, tokens_per_second: float | None = None) -> None:
        if self._bar is not None:
            speed = "" if tokens_per_second is None else f"  {tokens_per_second:,.0f} tokens/s"
            self._bar.update(self._task, advance=1, said=f"loss {loss:.3f}{speed}")

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
