"""Shows the progress of a storm on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """A progress bar for each step, on standard error (a ``run.Screen``)."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._total = 0

    def title(self, text: str) -> None:
        """Name the next storm."""
        self._progress.console.print(text)

    def phase(self, text: str, total: int) -> None:
        """Finish the bar, and start another."""
        if self._task is not None:
            self._progress.update(self._task, completed=self._total)
            self._progress.stop_task(self._task)
        self._task, self._total = self._progress.add_task(text, total=total), total

    def done(self, count: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._total = max(count, 1)
            self._progress.update(self._task, completed=count)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
