"""What a person sees while a model trains: how far, the loss, the time left, and a line an epoch above the bar."""

from types import TracebackType
from typing import Any


class Progress:
    """A bar on stderr, or only the lines, on stdout, if not ``shown``."""

    def __init__(self, first: int, steps: int, shown: bool) -> None:
        self._bar: Any = None
        if not shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("training"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            redirect_stdout=True,
        )
        self._task = self._bar.add_task("", total=steps, completed=first, loss=float("nan"))

    def advance(self, loss: float) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, loss=loss)

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
