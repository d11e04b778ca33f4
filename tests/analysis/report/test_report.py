"""The report as a page: complete, self-contained, bounded, and safe against hostile telemetry."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from haclient.analysis.report import text as texts
from haclient.analysis.report.queries import queries
from haclient.analysis.report.render import LIMIT, render
from tests.analysis.report_tables import MEMBERS, stream, tables

_AT = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
_ANSWERS = ("away", "happened", "hit", "long", "why", "compared", "do")
_SECTIONS = (*_ANSWERS, "storms", "members", "jitter", "sites", "not_recovered")
_HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
_VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """The structure of a page: its elements with their attributes, its text, and whether tags match."""

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
    return _usual() if given is None else render(given, title="Last night", generated_at=_AT)


@functools.cache
def _usual() -> str:
    return render(tables(), title="Last night", generated_at=_AT)


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


def _charts(text: str) -> dict[str, dict[str, Any]]:
    """Return the charts of a page, by their ids, as its script reads them."""
    [data] = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    found: dict[str, dict[str, Any]] = json.loads(data)
    return found


def test_the_seven_answers_come_first_and_in_their_order() -> None:
    page = Page(_page())
    assert [section["id"] for section in page.all("section")] == list(_SECTIONS)
    assert [link["href"] for link in page.all("a")][:7] == [f"#{name}" for name in _ANSWERS]
    for words in (
        "split_claim",
        "orders",
        MEMBERS[0],
        "billing-7",
        "connection reset by peer",
    ):
        assert words in page.text


def test_every_chart_has_its_element_and_every_figure_its_query() -> None:
    text = _page()
    page = Page(text)
    places = [element["id"] for element in page.all("div") if element.get("class") == "chart"]
    assert set(_charts(text)) == set(places)
    assert len(places) == len(set(places)) == 12
    shown = {html.unescape(query) for query in re.findall(r'<pre tabindex="0">(.*?)</pre>', text, re.DOTALL)}
    assert shown == set(queries(width=5, slo=0.999, baseline="night-before").values())


def test_the_promotion_and_the_deploy_are_marked_in_the_timeline() -> None:
    spec = json.dumps(_charts(_page())["chart-timeline"])
    for words in ("generation 5, b.example:5671", "billing 2.4.1", "lost in a storm", "lost singly"):
        assert words in spec
    assert r"promotion announced\nby member-b, 2.05 s" in json.dumps(
        _charts(_page())["chart-storm-0-attempts"]
    )


def test_both_times_of_a_promotion_are_named() -> None:
    given = tables()
    given["promotions"][0] |= {"announced_at": "2026-11-21 02:03:13.450", "announced_by": "member-b"}
    [shown] = re.findall(r'aria-label="Promotions".*?</table>', _page(given), re.DOTALL)
    heads = re.findall(r'<th role="columnheader"[^>]*>(.*?)</th>', shown)
    assert heads[:2] == ["First client back (UTC)", "Announced (UTC)"]
    assert "02:03:13.500</th>" in shown
    assert "02:03:13.450 by member-b</td>" in shown


def test_every_query_names_the_tables_that_it_reads() -> None:
    text = _page()
    summaries = re.findall(r"<summary>Query(.*?)</summary>.*?<pre[^>]*>(.*?)</pre>", text, re.DOTALL)
    assert len(summaries) >= 18
    for summary, query in summaries:
        named = re.findall(r"<code>(.*?)</code>", summary)
        assert named
        for name in named:
            assert name in html.unescape(query)
        assert "in the folder that has this report" in query
    [own] = re.findall(r'<section id="not_recovered">.*?</section>', text, re.DOTALL)
    assert "Query: <code>tables/not_recovered</code>" in own


@pytest.mark.slow
def test_no_percentile_is_marked_on_a_curve_that_counts_first_connects_too() -> None:
    given = tables()
    given["headline"][0]["never_connected"] = 0
    assert "p50 6.1 s" in json.dumps(_charts(_page(given))["chart-ecdf"])
    given["headline"][0]["never_connected"] = 2
    assert "p50 6.1 s" not in json.dumps(_charts(_page(given))["chart-ecdf"])
    assert "2,013 outages and 2 first connects that never succeeded" in Page(_page(given)).text


def test_wide_tables_are_lists_on_a_phone() -> None:
    """Fourteen columns are too wide; each cell of such a table has the name of its column."""
    text = _page()
    for name in ("Members", "Who is away", "Promotions"):
        [table] = re.findall(rf'aria-label="{name}"[^>]*>(<table.*?</table>)', text, re.DOTALL)
        assert table.startswith('<table class="stack')
        heads = re.findall(r'<th role="columnheader"[^>]*>(.*?)</th>', table)
        cells = re.findall(r"<td [^>]*>", table)
        assert cells
        assert {html.unescape(cell.split('data-name="')[1].split('"')[0]) for cell in cells} == set(heads[1:])


def test_a_percentile_that_is_a_bound_is_shown_as_one() -> None:
    given = tables()
    given["headline"][0] |= {"p99": 3600.0, "p99_is_bound": 1}
    text = _page(given)
    assert (
        "The median downtime of 2,013 outages (without the 2 first connects) is 6.1 s, "
        "the 99th percentile over 60 min,"
    ) in Page(text).text
    assert "p99" not in json.dumps(_charts(text)["chart-ecdf"]), "the curve marks what is known"


def test_tags_are_closed_and_ids_are_unique() -> None:
    page = Page(_page())
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_charts_say_what_they_show_and_tables_have_headers() -> None:
    text = _page()
    for element in Page(text).all("div"):
        if element.get("class") == "chart":
            assert element["role"] == "img"
            assert element["aria-label"]
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    for body in re.findall(r"<table.*?</table>", own, re.DOTALL):
        assert 'scope="col"' in body
        assert 'scope="row"' in body


def test_nothing_is_fetched_from_anywhere() -> None:
    text = _page()
    page = Page(text)
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"https?:|@import|url\(", own + json.dumps(_charts(text)))
    assert not page.all("link")
    assert not page.all("img")
    for name, attributes in page.elements:
        assert not attributes.keys() & {"src", "srcset", "action", "data"}
        assert name != "a" or (attributes["href"] or "").startswith("#")


def test_the_policy_lets_the_two_scripts_run_and_no_other() -> None:
    text = _page()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    [policy] = [
        html.unescape(meta["content"] or "")
        for meta in Page(text).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    [allowed] = re.findall(r"script-src ([^;]*)", policy)
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(allowed.split()) == {f"'sha256-{each}'" for each in hashes}


def test_markup_in_any_value_stays_text() -> None:
    hostile = {name: _everywhere(rows, _HOSTILE) for name, rows in tables().items()}
    hostile["totals"] = []
    text = render(hostile, title=_HOSTILE, generated_at=_AT)
    page = Page(text)
    assert page.open == []
    assert len(page.all("script")) == 3
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count("<script>alert(1)</script>") > 20
    assert "<script>alert(1)" in json.dumps(_charts(text)), "it is data, and only data"


@pytest.mark.slow
def test_it_stays_small_however_much_it_is_given() -> None:
    long = "x" * 5_000 + "<" * 5_000
    huge = {name: [_everywhere(row, long) for row in rows] * 200 for name, rows in tables().items()}
    huge["storms"] = [{**huge["storms"][0], "storm_id": f"s{number}"} for number in range(30)]
    huge["totals"] = []
    for name in ("storm_timeline", "storm_marks", "storm_reasons"):
        huge[name] = [{**row, "storm_id": f"s{number}"} for number in range(4) for row in huge[name][:2000]]
    assert len(_page(huge).encode()) < LIMIT


@pytest.mark.slow
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
    assert len(_charts(text)) == 19
    assert len(text.encode()) < LIMIT


@pytest.mark.slow
def test_all_is_well_only_where_nobody_is_away() -> None:
    given = tables() | {"alarms": []}
    assert "No alarm: everybody is back" not in _page(given)
    assert "No setting is to be changed while connections are away" in _page(given)
    given["headline"] = [given["headline"][0] | {"away": 0}]
    assert "No alarm: everybody is back" in _page(given)
    assert "Set accept_rate of the broker to 200 connections a second" in _page(given)


def test_the_title_is_a_name_and_the_path_stands_below() -> None:
    page = Page(render({}, title="/var/log/fleet/night/", generated_at=_AT))
    assert page.text.startswith("night night /var/log/fleet/night/ ·")
    assert [texts.name(each) for each in ("night", "s3://logs/night", "a/b <c>")] == [
        "night",
        "night",
        "a/b <c>",
    ]


def test_columns_of_a_storm_say_how_long_they_are_and_failures_of_when() -> None:
    text = Page(_page()).text
    assert "A column is 100 ms wide, and as high as if it went on for a second" in text
    assert "comes back at once" not in text
    assert "from the loss until each was back or to the end of the period: connection_refused 1,820." in text


@pytest.mark.parametrize(
    ("storm", "words"),
    [
        (
            {"saturated": True, "ratio_to_ideal": 1.17, "clients_hit": 9, "back": 9},
            "1.17\N{MULTIPLICATION SIGN}",
        ),
        ({"saturated": True, "ratio_to_ideal": None, "clients_hit": 9, "back": 4}, "not all are back"),
        ({"saturated": False, "ratio_to_ideal": None, "clients_hit": 9, "back": 9}, "not saturated"),
    ],
)
def test_a_storm_without_a_ratio_says_why(storm: dict[str, Any], words: str) -> None:
    assert texts.to_ideal(storm) == words


def test_the_percentiles_stand_above_the_curve_where_there_is_room() -> None:
    given = tables()
    given["headline"][0]["never_connected"] = 0
    layers = _charts(_page(given))["chart-ecdf"]["layer"]
    labels = [layer["mark"] for layer in layers if layer["mark"]["type"] == "text"]
    assert [label["baseline"] for label in labels] == ["bottom", "top"]


def test_what_a_member_sent_on_did_not_fail() -> None:
    """Of 60 attempts without a connection 12 were redirected, so that 48 failed."""
    text = _page()
    assert "Refused" not in text
    [table] = re.findall(r'aria-label="Members".*?</table>', text, re.DOTALL)
    [row, _] = re.findall(r'scope="row"[^>]*>[ab]\.example:5671</th>(.*?)</tr>', table)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert cells[2:5] == ["48", "12", "connection_refused 48, redirected 12"], "side by side, on any screen"
    assert "“redirected” stands there only where there was no other" in Page(text).text


@pytest.mark.parametrize("rows", [{}, {name: [] for name in tables()}])
def test_no_data_is_said_in_words(rows: dict[str, list[dict[str, Any]]]) -> None:
    page = Page(_page(rows))
    assert "No connection was lost." in page.text
    shown = [section["id"] for section in page.all("section")]
    assert shown == [name for name in _SECTIONS if name != "sites"]
    assert not _charts(_page(rows))
    assert "None" not in page.text.replace("None:", "")


@pytest.mark.slow
def test_columns_that_an_older_table_lacks_are_left_blank() -> None:
    given = tables()
    given["members"] = [{"server_address": "a", "server_port": 1, "attempts": 3}]
    given["storms"] = [{"storm_id": "s1", "cluster": "orders"}]
    page = Page(_page(given))
    assert "a:1" in page.text
    assert texts.BLANK in page.text


def test_rows_that_are_not_shown_are_counted() -> None:
    assert "and 60 more" in Page(_page()).text


def test_one_outage_alone_makes_a_chart() -> None:
    given = {
        "headline": [{"outages": 1, "clients_hit": 1, "connections": 1, "p50": 0.0, "p99": 0.0, "max": 0.0}],
        "ecdf": [{"downtime": 0.0, "share": 1.0}],
    }
    text = _page(given)
    assert "1 outage" in Page(text).text
    assert list(_charts(text)) == ["chart-ecdf"]


def test_the_lag_of_each_stream_is_drawn_and_listed_as_numbers() -> None:
    text = _page()
    for words in ("west: its own events", "east: link from-a", "9.5 s", "2,100", "duplicates 7, gone 2"):
        assert words in Page(text).text
    lags = [name for name in _charts(text) if name.startswith("chart-lag")]
    assert lags == ["chart-lag-0-seconds", "chart-lag-0-events", "chart-lag-1-seconds"], (
        "a link has no events"
    )


def test_the_time_of_the_analysis_is_shown_in_utc() -> None:
    local = _AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert "analysed 2026-11-21 05:00 UTC" in Page(render({}, title="t", generated_at=local)).text


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, texts.BLANK), (0.0042, "4.2 ms"), (11.73, "11.7 s"), (300, "5 min"), (8000, "2.22 h")],
)
def test_durations_are_in_the_unit_that_suits_them(value: float | None, words: str) -> None:
    assert texts.seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1, "100 %"), (0.99996, "99.996 %"), (0, "0 %"), (0.5, "50 %"), (0.00001, "0.001 %")]
)
def test_nearly_all_is_not_called_all(value: float, words: str) -> None:
    assert texts.percent(value) == words


def _luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_colours_stand_out_in_light_and_dark() -> None:
    """WCAG 2.2: 4.5 for text, 3 for graphics."""
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
def test_a_browser_draws_every_chart_in_a_page_that_is_never_wider_than_the_screen(tmp_path: Path) -> None:
    """Tables may scroll in their own boxes; the page may not.  The content policy is not violated."""
    widths = (320, 390, 1280)
    (tmp_path / "page.html").write_text(_page(), encoding="utf-8")
    frames = "".join(
        f'<iframe src="page.html" style="width:{width}px;height:600px;border:0"></iframe>' for width in widths
    )
    script = """
      const all = [...document.querySelectorAll("iframe")];
      const done = () => all.every((f) => f.contentDocument.documentElement.dataset.drawn);
      const look = () => { if (!done()) return setTimeout(look, 50);
        document.title = all.map((f) => { const e = f.contentDocument.documentElement;
          const d = [...f.contentDocument.querySelectorAll(".chart svg, .chart svg text")];
          const wide = Math.max(...d.map((s) => s.getBoundingClientRect().right)) > e.clientWidth;
          return [e.scrollWidth - e.clientWidth, e.dataset.drawn, wide]; }).join(" "); };
      onload = look;
    """
    outer = tmp_path / "outer.html"
    outer.write_text(f"<title></title>{frames}<script>{script}</script>", encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += ["--virtual-time-budget=20000", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    dumped = subprocess.run(
        [*command, outer.as_uri()], capture_output=True, text=True, check=True, timeout=100
    ).stdout
    [title] = re.findall(r"<title>(.*?)</title>", dumped)
    assert title == " ".join(["0,12/12,false"] * len(widths))
