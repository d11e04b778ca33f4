"""The plots: a PNG, and an HTML page that loads nothing from a network."""

from __future__ import annotations

import html
import pickle
import re
from pathlib import Path

import pytest

from haclient.simulation import arrivals, plot
from haclient.simulation.arrivals import Arrivals
from haclient.simulation.plot import NoPlotsError

SERIES = [
    Arrivals("full <retry-after>", [0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.1, 0.3], 10.0),
    Arrivals("slow", [5.0, 60.0], [-1.0, 0.5, 5.0, 60.0], 10.0),
    Arrivals("nobody", [], [1.0], 10.0),
    Arrivals("a fourth", [0.3], [], 10.0),
]
TABLE = [
    {"name": "full <retry-after>", "last": 0.4, "not_back": 0},
    {"name": "nobody", "last": None, "away": 2},
]


@pytest.mark.slow
def test_a_png_is_drawn(tmp_path: Path) -> None:
    plot.write_png(SERIES, tmp_path / "a.png", title="A storm")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_png_of_nothing_is_drawn_as_well(tmp_path: Path) -> None:
    plot.write_png([], tmp_path / "a.png", title="Nothing")
    assert (tmp_path / "a.png").stat().st_size > 0


def test_the_page_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    plot.write_html(SERIES, TABLE, tmp_path / "a.html", title="A <storm>")
    page = html.unescape((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert page.count('<div class="chart"') == len(SERIES)
    own = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|url\(|@import", own)
    assert page.count("<script>") == page.count("sha256-") == 2
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_text_on_the_page_is_escaped(tmp_path: Path) -> None:
    plot.write_html(SERIES, TABLE, tmp_path / "a.html", title="A <storm>")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<storm>" not in page
    assert "<retry-after>" not in page
    assert "full &lt;retry-after&gt;" in page


def test_attempts_before_the_primary_is_back_are_not_drawn() -> None:
    assert sum(arrivals.per_second([-0.1, -5.0], 1.0)) == 0
    assert sum(arrivals.per_second([0.0, 0.5], 1.0)) * (1.0 / 120) == pytest.approx(2)


def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(NoPlotsError, match=r"pip install .*\[plots\]"):
        plot.write_png(SERIES, tmp_path / "a.png", title="A storm")
    with pytest.raises(NoPlotsError, match="markupsafe"):
        plot.write_html(SERIES, TABLE, tmp_path / "a.html", title="A storm")


def test_the_error_pickles() -> None:
    error = NoPlotsError("matplotlib")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - its own
