"""The report as a page: complete, self-contained, bounded, and safe against what telemetry says."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from haclient.analysis.report import svg
from haclient.analysis.report.render import LIMIT, render
from tests.analysis.report_tables import MEMBERS, stream, tables

_AT = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
_SECTIONS = ("alarms", "advice", "downtime", "storms", "jitter", "sites", "members", "not_recovered")
_HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
_VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """What a page is made of: its elements with their attributes, its text, and whether tags match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def _page(given: dict[str, list[dict[str, Any]]] | None = None) -> str:
    return render(tables() if given is None else given, title="Last night", generated_at=_AT)


def _everywhere(value: Any, planted: str) -> Any:
    if isinstance(value, str):
        return value if re.fullmatch(r"s\d+|2026-.*", value) else planted + value
    if isinstance(value, dict):
        return {
            key if key in {"storm_id", "table"} else _key(key, value, planted): _everywhere(item, planted)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_everywhere(item, planted) for item in value]
    return value


def _key(key: str, row: dict[str, Any], planted: str) -> str:
    return planted + key if key.startswith(("connection_", "redirected")) else key


def test_every_section_and_every_table_is_there() -> None:
    page = Page(_page())
    assert [section["id"] for section in page.all("section")] == list(_SECTIONS)
    assert len(page.all("table")) == 7
    for words in ("split_claim", "accept_rate", "orders", MEMBERS[0], "billing-7", "member-b promoted"):
        assert words in page.text


def test_the_headline_has_outages_clients_times_never_back_and_alarms() -> None:
    page = Page(_page())
    tiles = page.text.partition("unreadable lines left out")[2]
    for figure in (
        "2,013",
        "2,000",
        "6.1 s",
        "11.4 s",
        "11.7 s",
        "3 connections went silent",
        "1 connection gave up",
        "2 connections never connected",
    ):
        assert figure in tiles


def test_a_percentile_that_is_a_bound_is_shown_as_one() -> None:
    given = tables()
    given["headline"][0] |= {"p99": 3600.0, "p99_is_bound": 1}
    text = Page(_page(given)).text
    assert "The median downtime is 6.1 s, the 99th percentile over 60 min." in text
    assert "after 60 min" not in text, "the curve marks what is known"


def test_tags_are_closed_and_ids_are_unique() -> None:
    page = Page(_page())
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_charts_say_what_they_show_and_tables_have_headers() -> None:
    text = _page()
    page = Page(text)
    ids = {attributes.get("id") for _, attributes in page.elements}
    charts = page.all("svg")
    assert len(charts) == 10, "five charts, each for a desk and for a phone"
    for chart in charts:
        assert chart["role"] == "img"
        assert set((chart["aria-labelledby"] or "").split()) <= ids
    for body in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert 'scope="col"' in body
        assert 'scope="row"' in body


def test_nothing_is_fetched_from_anywhere() -> None:
    text = _page()
    page = Page(text)
    assert not re.search(r"https?:|@import|url\(", text)
    assert not page.all("link")
    assert not page.all("img")
    for _, attributes in page.elements:
        assert not attributes.keys() & {"src", "href", "srcset", "action", "data"}


def test_the_policy_lets_the_one_script_run_and_no_other() -> None:
    text = _page()
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [
        html.unescape(meta["content"] or "")
        for meta in Page(text).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_markup_in_any_value_stays_text() -> None:
    hostile = {name: _everywhere(rows, _HOSTILE) for name, rows in tables().items()}
    hostile["totals"] = []
    text = render(hostile, title=_HOSTILE, generated_at=_AT)
    page = Page(text)
    assert page.open == []
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count("<script>alert(1)</script>") > 20


def test_it_stays_small_however_much_it_is_given() -> None:
    long = "x" * 5_000 + "<" * 5_000
    huge = {name: [_everywhere(row, long) for row in rows] * 200 for name, rows in tables().items()}
    huge["storms"] = [{**huge["storms"][0], "storm_id": f"s{number}"} for number in range(30)]
    huge["totals"] = []
    for name in ("storm_timeline", "storm_marks", "storm_reasons"):
        huge[name] = [{**row, "storm_id": f"s{number}"} for number in range(4) for row in huge[name][:2000]]
    assert len(_page(huge).encode()) < LIMIT


def test_a_busy_fleet_has_every_pixel_filled_below_the_limit() -> None:
    busy = tables()
    busy["storm_timeline"] = [
        {
            "storm_id": f"s{storm}",
            "second": second * 0.7,
            "width": 0.7,
            "member": f"broker-{member}.some-long-name.example:5671",
            "attempts": 1234 + second * member,
            "failures": 1000,
            "connected": 777 + second + member,
        }
        for storm in range(3)
        for second in range(120)
        for member in range(6)
    ]
    busy["storms"] = [{**busy["storms"][0], "storm_id": f"s{number}"} for number in range(20)]
    busy["members"] = busy["members"] * 20
    busy["not_recovered"] = busy["not_recovered"] * 50
    busy["alarms"] = busy["alarms"] * 50
    columns = [
        {**each, "second": each["second"] + 6000 * more}
        for more in range(2)
        for each in stream(None)["columns"]
    ]
    busy["sites"] = [stream(None, columns=columns, cluster=f"west-{number}") for number in range(12)]
    text = _page(busy)
    assert len(Page(text).all("svg")) == 16
    assert len(text.encode()) < LIMIT


@pytest.mark.parametrize("rows", [{}, {name: [] for name in tables()}])
def test_no_data_is_said_in_words(rows: dict[str, list[dict[str, Any]]]) -> None:
    page = Page(_page(rows))
    assert "No connection was lost." in page.text
    shown = [section["id"] for section in page.all("section")]
    assert shown == [name for name in _SECTIONS if name != "sites"]
    assert not page.all("svg")
    assert "None" not in page.text.replace("None:", "")


def test_columns_that_an_older_table_lacks_are_left_blank() -> None:
    given = tables()
    given["members"] = [{"server_address": "a", "server_port": 1, "attempts": 3}]
    given["storms"] = [{"storm_id": "s1", "cluster": "orders"}]
    page = Page(_page(given))
    assert "a:1" in page.text
    assert svg.BLANK in page.text


def test_rows_that_are_not_shown_are_counted() -> None:
    assert "and 60 more" in Page(_page()).text


def test_one_outage_alone_makes_a_chart() -> None:
    given = {
        "headline": [{"outages": 1, "clients_hit": 1, "p50": 0.0, "p99": 0.0, "max": 0.0}],
        "ecdf": [{"downtime": 0.0, "share": 1.0}],
    }
    assert "1 outage hit 1 connection." in Page(_page(given)).text


def test_the_lag_of_each_stream_is_drawn_over_the_time_of_day_and_listed_as_numbers() -> None:
    text = _page()
    page = Page(text)
    for words in ("west: its own events", "east: link from-a", "9.5 s", "2,100", "duplicates 7, gone 2"):
        assert words in page.text
    assert re.search(r'class="tick"[^>]*>\d\d:\d0<', text), "ticks at round times"
    assert text.count(">lag in seconds<") == 4
    assert text.count(">lag in events<") == 2, "a link reports no number of events"
    assert "half of the worst minute at most 110 ms behind" in page.text


@pytest.mark.parametrize(
    ("minutes", "label"), [(1, "02:00"), (3, "02:01"), (3000, "06:00"), (30_000, "11-25")]
)
def test_a_minute_is_drawn_as_well_as_a_month(minutes: int, label: str) -> None:
    width = 60 * -(-minutes // 120)
    [one, *_] = stream(None)["columns"]
    first = 1_795_226_400
    columns = [
        {**one, "second": at, "width": width, "lag_seconds_max": 3.0}
        for at in range(first, first + 60 * minutes, width)
    ]
    page = Page(_page({"sites": [stream(None, columns=columns)]}))
    assert len(page.all("svg")) == 2
    assert label in page.text


def test_the_time_of_the_analysis_is_shown_in_utc() -> None:
    local = _AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert "analysed 2026-11-21 05:00 UTC" in Page(render({}, title="t", generated_at=local)).text


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, svg.BLANK), (0.0042, "4.2 ms"), (11.73, "11.7 s"), (300, "5 min"), (8000, "2.22 h")],
)
def test_durations_are_in_the_unit_that_suits_them(value: float | None, words: str) -> None:
    assert svg.seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1, "100 %"), (0.99996, "99.996 %"), (0, "0 %"), (0.5, "50 %"), (0.00001, "0.001 %")]
)
def test_nearly_all_is_not_called_all(value: float, words: str) -> None:
    assert svg.percent(value) == words


@pytest.mark.parametrize(("lowest", "highest"), [(0.001, 0.001), (0.0121, 0.3), (2.4, 12.0), (0.004, 90_000)])
@pytest.mark.parametrize("count", [5, 9])
def test_a_logarithmic_axis_holds_all_values_with_few_ticks(
    lowest: float, highest: float, count: int
) -> None:
    ticks = svg.log_steps(lowest, highest, count)
    assert ticks[0] <= lowest * 1.001
    assert ticks[-1] >= highest * 0.999
    assert len(ticks) <= max(count, 9)
    assert ticks == sorted(set(ticks))


def _luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_colours_stand_out_in_light_and_dark() -> None:
    """WCAG 2.2: 4.5 for text, 3 for what is drawn."""
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", _page())
    assert len(blocks) == 3
    for block in blocks:
        colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block))
        card = _luminance(colours["card"])
        for name in ("ink", "soft", "bad", "good", "m0", "m1", "m2", "m3", "m4", "others", "event"):
            dark, light = sorted((card, _luminance(colours[name])))
            ratio = (light + 0.05) / (dark + 0.05)
            assert ratio >= (4.5 if name in {"ink", "soft", "bad", "good"} else 3), (name, ratio)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [360, 390, 1100])
def test_the_page_is_never_wider_than_the_screen(width: int, tmp_path: Path) -> None:
    """Tables may scroll in their own boxes; the page may not."""
    frame = (
        f'<iframe id="f" style="width:{width}px;height:600px;border:0" srcdoc="{html.escape(_page())}">'
        "</iframe><script>f.onload = () => { const d = f.contentDocument;"
        "const e = d.documentElement;"
        "document.title = [e.scrollWidth - e.clientWidth, d.getElementById('theme').hidden]; }</script>"
    )
    outer = tmp_path / "outer.html"
    outer.write_text(f"<title></title>{frame}", encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={tmp_path}/profile", "--dump-dom", outer.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "<title>0,false</title>" in dumped, dumped[:200]
