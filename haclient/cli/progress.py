"""The progress of ``send`` and ``receive``, on standard error.

A terminal shows a bar.  A line reports each loss and return of the connection, and a first search that finds
no primary at once.  A summary ends the output.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from haclient import events
from haclient.cli.formatting import line_of
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.attempt_summary import describe_failures
from haclient.discovery.evidence import AttemptRecord, Failure
from haclient.events import Event
from haclient.printable.text import printable

QUIET = click.option("-q", "--quiet", is_flag=True, help="Nothing on standard error but errors.")
VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, help="Every event of the connection on standard error."
)
_SHOWN = (events.Disconnected, events.Reconnected)
_STATES = {
    events.Connected: "connected",
    events.Reconnected: "connected",
    events.Disconnected: "reconnecting",
    events.Parked: "parked",
    events.Closed: "closed",
    events.GaveUp: "gave up",
}


class MessageProgress:
    """Counts messages, and shows the progress.

    :param verb: word for the counted messages, such as ``sent``.
    :param total: expected number of messages, if known.
    :param quiet: show nothing.
    :param verbose: show every event.
    :param bar: whether a bar is allowed; it would disturb lines that standard output writes to the terminal.
    :param clock: a monotonic clock, in seconds.
    :ivar count: messages so far.
    :ivar failovers: number of times that the connection came back.
    """

    def __init__(
        self,
        verb: str,
        *,
        total: int | None = None,
        quiet: bool = False,
        verbose: bool = False,
        bar: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = 0
        self.failovers = 0
        # Failures of endpoints in the first round of each connection; ``None`` after this round.
        self._answers: dict[str, dict[Endpoint, Failure] | None] = {}
        self._verb = verb
        self._verbose = verbose
        self._clock = clock
        self._began = clock()
        self._last: float | None = None  # time of the last counted message
        self._console = Console(stderr=True, quiet=quiet, highlight=False, markup=False)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not bar or not self._console.is_terminal,
            redirect_stdout=False,
        )
        self._task: TaskID = self._bar.add_task(verb, total=total, rate="", state="connecting")

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last message, so that an idle end lowers no rate; else to now."""
        return (self._clock() if self._last is None else self._last) - self._began

    def add(self, count: int) -> None:
        """Count more messages."""
        self.count += count
        if count:
            self._last = self._clock()
        if not self._bar.disable:
            self._bar.update(self._task, completed=self.count, rate=f"{self._rate:,.0f}/s")

    def on_event(self, event: Event) -> None:
        """Show an event of the connection; may be called on any thread."""
        self.failovers += isinstance(event, events.Reconnected)
        if not self._verbose:
            self._note_first_round(event)
        if type(event) in _STATES:
            self._bar.update(self._task, state=_STATES[type(event)])
        if self._verbose or isinstance(event, _SHOWN):
            self.print_line(line_of(event))

    def _note_first_round(self, event: Event) -> None:
        """Print each endpoint's failure if the first round of a first connect found no primary."""
        name = event.stamp.connection_name
        answers = self._answers.setdefault(name, {})
        if answers is None:
            return
        match event:
            case events.AttemptFailed(record=record) | events.Redirected(record=AttemptRecord() as record):
                answers[record.endpoint] = record.failure
            case events.Connected():
                self._answers[name] = None
            case events.BackingOff() if event.round > 0 and answers:
                self._answers[name] = None
                self.print_line(f"no primary yet: {describe_failures(answers.items())}; the search goes on")

    def print_line(self, text: str) -> None:
        """Print a line on standard error."""
        self._console.print(printable(text), soft_wrap=True)

    def summary(self, **more: Any) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        return {
            self._verb: self.count,
            **more,
            "failovers": self.failovers,
            "seconds": round(self.seconds, 6),
            "rate": round(self._rate, 3),
        }

    def conclude(self, *more: str) -> None:
        """Print the figures as a sentence."""
        times = {0: "", 1: ", 1 failover"}.get(self.failovers, f", {self.failovers} failovers")
        parts = (f"{self._verb} {self.count:,} in {self.seconds:.2f} s, {self._rate:,.0f}/s{times}", *more)
        self.print_line("; ".join(parts))

    @property
    def _rate(self) -> float:
        seconds = self.seconds
        return self.count / seconds if seconds else 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
