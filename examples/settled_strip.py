"""The strip that the demonstration prints at its end: a bar for each 50 ms, a mark for each kill.

A row is as wide as the terminal, or 80 columns without one.  In a long run a bar is more than 50 ms.
Without UTF-8 the bars are ASCII.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

BAR_MS = 50
# Leaves room for the table above on one screen.
MOST_ROWS = 12
_LABEL = "{:6.1f} s "
# Rows of whole seconds are easier to read.
_BARS_PER_SECOND = 1000 // BAR_MS
_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


class _Glyphs(NamedTuple):
    """The bars from empty to full, and the mark of a kill."""

    bars: str
    mark: str


_UNICODE = _Glyphs(" ▁▂▃▄▅▆▇█", "▼")
_ASCII = _Glyphs(" .:-=+*#@", "v")


@dataclass(frozen=True, slots=True)
class SettledStrip:
    """A strip that rich can print.  Times are seconds since the run began, in ascending order.

    :param ended_at: when the last message was sent; the last pause may extend to it.
    """

    settled_at: Sequence[float]
    killed_at: Sequence[float]
    ended_at: float = 0.0

    @property
    def longest_pause(self) -> float:
        """Return the longest time in seconds without a settled message."""
        times = (*self.settled_at, max((self.ended_at, *self.settled_at[-1:])))
        return max((after - before for before, after in pairwise(times)), default=self.ended_at)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a heading and the rows."""
        if not self.settled_at:
            return
        glyphs = _ASCII if options.ascii_only else _UNICODE
        columns = _bars_in(options.max_width - len(_LABEL.format(0)))
        times = [int(at * 1000) for at in (*self.settled_at, *self.killed_at)]
        first, last = min(times) // 1000 * 1000, max(times)
        bar_ms = BAR_MS * -(-(last - first + 1) // (BAR_MS * columns * MOST_ROWS))
        counts = Counter((int(at * 1000) - first) // bar_ms for at in self.settled_at)
        # After a failover all held-back messages are settled at once; their count would make every other bar
        # flat.
        full = max(2 * int(statistics.median(counts.values())), 1)
        kills = [(int(at * 1000) - first) // bar_ms for at in self.killed_at]
        yield Text(f"messages settled in each {bar_ms} ms; a full bar is {full:,} or more, a blank none")
        for start in range(0, (last - first) // bar_ms + 1, columns):
            here = [kill - start for kill in kills if start <= kill < start + columns]
            if here:
                yield _marks(here, columns, glyphs.mark)
            steps = len(glyphs.bars) - 1
            heights = (-(-counts[start + bar] * steps // full) for bar in range(columns))
            bars = "".join(glyphs.bars[min(height, steps)] for height in heights)
            row = Text(_LABEL.format((first + start * bar_ms) / 1000), no_wrap=True, overflow="crop")
            yield row.append(bars.rstrip(), "green")


def _bars_in(columns: int) -> int:
    return max(columns - columns % _BARS_PER_SECOND if columns >= _BARS_PER_SECOND else columns, 1)


def _marks(positions: Sequence[int], columns: int, mark: str) -> Text:
    """Return the line of marks above a row; the word "killed" follows or precedes a mark if it fits."""
    line = [" "] * columns
    for position in positions:
        line[position] = mark
    for position in positions:
        for start, word in ((position + 1, " killed"), (position - 7, "killed ")):
            room = slice(start, start + len(word))
            if start >= 0 and line[room] == [" "] * len(word):
                line[room] = word
                break
    indent = " " * len(_LABEL.format(0))
    return Text(indent + "".join(line).rstrip(), "bold red", no_wrap=True, overflow="crop")


def summary(*, kills: int, sent: int, received: int, longest_pause: float) -> str:
    """Return the result of the run as one sentence."""
    number = _NUMBERS[kills] if kills < len(_NUMBERS) else f"{kills:,}"
    killed = f"{number} {'primary was' if kills < 2 else 'primaries were'} killed"
    lost = f"{sent - received:,}" if sent > received else "none"
    arrived = f"{received:,} of {sent:,} messages arrived, {lost} lost"
    return f"{killed}; {arrived}; the longest pause was {longest_pause:.2f} s."
