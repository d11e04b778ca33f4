"""The strip at the end of ``make demo``, without a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples.settled_strip import SettledStrip, summary


def printed(strip: SettledStrip, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return the lines on a terminal of this width and encoding."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, color_system=None).print(strip)
    file.seek(0)
    return file.read().splitlines()


def steady(begin: float, end: float) -> list[float]:
    """Return a message each 10 ms."""
    return [begin + 0.01 * number for number in range(round((end - begin) * 100))]


RUN = SettledStrip([*steady(0, 1), *steady(1.5, 4)], [1.0])


def test_a_pause_is_a_gap_below_the_mark_of_the_kill() -> None:
    heading, marks, first, second = printed(RUN)
    assert heading.startswith("messages settled in each 50 ms; a full bar is 10 or more")
    assert marks == " " * 29 + "▼ killed"
    assert first == "   0.0 s " + "▄" * 20 + " " * 10 + "▄" * 30
    assert second == "   3.0 s " + "▄" * 20
    assert marks.index("▼") == first.index("▄ ") + 1


def test_messages_settled_at_once_are_a_full_bar() -> None:
    strip = SettledStrip([*steady(0, 1), *[1.02] * 500, *steady(1.05, 2)], [])
    assert printed(strip)[1] == "   0.0 s " + "▄" * 20 + "█" + "▄" * 19


def test_without_utf_8_the_picture_is_ascii() -> None:
    lines = printed(RUN, encoding="ascii")
    assert lines[1] == " " * 29 + "v killed"
    assert lines[2] == "   0.0 s " + "=" * 20 + " " * 10 + "=" * 30


@pytest.mark.parametrize("width", [9, 10, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = printed(SettledStrip(steady(0, 60), [0.0, 20.0, 59.99]), width=width)
    assert max(map(len, lines)) <= width
    assert sum(" s " in line for line in lines) <= 12


def test_marks_close_together_keep_their_places() -> None:
    marks = printed(SettledStrip(steady(0, 3), [1.0, 1.1, 2.95]))[1]
    assert [place for place, character in enumerate(marks) if character == "▼"] == [29, 31, 68]
    assert marks.endswith("killed ▼"), "the word is where there is room"


def test_a_run_that_settled_nothing_has_no_picture() -> None:
    assert printed(SettledStrip([], [1.0])) == []


@pytest.mark.parametrize(
    ("kills", "sent", "received", "pause", "sentence"),
    [
        (
            2,
            12,
            12,
            0.314,
            "Two primaries were killed; 12 of 12 messages arrived, none lost; the longest pause was 0.31 s.",
        ),
        (
            1,
            5_000,
            4_997,
            2.0,
            "One primary was killed; 4,997 of 5,000 messages arrived, 3 lost; the longest pause was 2.00 s.",
        ),
        (
            0,
            1,
            1,
            0.0,
            "No primary was killed; 1 of 1 messages arrived, none lost; the longest pause was 0.00 s.",
        ),
        (
            12,
            9,
            9,
            0.1,
            "12 primaries were killed; 9 of 9 messages arrived, none lost; the longest pause was 0.10 s.",
        ),
    ],
)
def test_one_sentence_says_what_was_shown(
    kills: int, sent: int, received: int, pause: float, sentence: str
) -> None:
    assert summary(kills=kills, sent=sent, received=received, longest_pause=pause) == sentence


def test_the_longest_pause_is_the_widest_gap() -> None:
    assert RUN.longest_pause == pytest.approx(0.51)
    assert SettledStrip([1.0], []).longest_pause == 0.0


def test_a_pause_lasts_until_the_end_if_nothing_is_settled_any_more() -> None:
    assert SettledStrip([0.0, 0.5, 1.0], [1.1], ended_at=4.0).longest_pause == 3.0
    assert SettledStrip([], [0.5], ended_at=4.0).longest_pause == 4.0
    assert SettledStrip([0.0, 0.5, 1.0], [], ended_at=0.9).longest_pause == 0.5
