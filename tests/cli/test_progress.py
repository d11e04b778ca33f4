"""The figures that ``send``, ``receive`` and ``move`` print at their end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from haclient.cli.progress import MessageProgress


def progress_at(*times: float) -> MessageProgress:
    """Return a message counter whose clock returns these times, one per reading."""
    readings: Iterator[float] = iter(times)
    return MessageProgress("received", quiet=False, bar=False, clock=lambda: next(readings))


def test_seconds_and_rate_end_with_the_last_message(capsys: pytest.CaptureFixture[str]) -> None:
    progress = progress_at(100.0, 101.0, 104.0)  # no reading at the end, however late that is
    progress.add(64)
    progress.add(36)
    progress.add(0)
    assert progress.summary() == {"received": 100, "failovers": 0, "seconds": 4.0, "rate": 25.0}
    progress.conclude()
    assert capsys.readouterr().err == "received 100 in 4.00 s, 25/s\n"


def test_without_a_message_the_seconds_are_those_of_the_wait() -> None:
    progress = progress_at(100.0, 103.0, 103.0)
    assert progress.summary() == {"received": 0, "failovers": 0, "seconds": 3.0, "rate": 0.0}
