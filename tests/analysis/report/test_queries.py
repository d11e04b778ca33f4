"""Each figure's query, run by DuckDB on the results, yields the values of the figure."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.analysis.job import InputError, Job
from haclient.analysis.report import data
from tests.analysis.local_job import Done, local

pytestmark = pytest.mark.slow

__all__ = ["local"]

Result = list[dict[str, Any]]


class Report:
    """A report: its charts' rows, and the results of its queries."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = (out / "report.html").read_text(encoding="utf-8")
        [charts] = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
        self.charts: dict[str, dict[str, Any]] = json.loads(charts)
        shown = re.findall(r'<pre tabindex="0">(.*?)</pre>', text, re.DOTALL)
        self.queries = [html.unescape(query) for query in shown]
        monkeypatch.chdir(out)
        self._duckdb = duckdb.connect()
        self._duckdb.execute("SET TimeZone = 'UTC'")

    def rows(self, chart: str, name: str) -> Result:
        found: Result = self.charts[chart]["datasets"][name]
        return found

    def found(self, *words: str) -> Result:
        """Return the rows of the first query that has all the words."""
        query = next(query for query in self.queries if all(word in query for word in words))
        cursor = self._duckdb.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture
def report(local: Done, monkeypatch: pytest.MonkeyPatch) -> Report:
    return Report(local.out, monkeypatch)


def test_every_query_of_the_page_runs(report: Report) -> None:
    assert len(report.queries) >= 14
    for query in report.queries:
        assert report.found(query) is not None


def test_the_timeline_shows_what_its_query_finds(report: Report) -> None:
    drawn = {
        row["at"]: (row["storm"] + row["single"] + row["never"], row["ended"], row["before"])
        for row in report.rows("chart-timeline", "columns")
    }
    found = report.found("moments")
    assert found
    for row in found:
        at = int(row["start"].replace(tzinfo=UTC).timestamp() * 1000)
        lost, ended, before = drawn[at]
        assert (lost, ended, before + lost - ended) == (row["lost"], row["ended"], row["away_after"])
    assert sum(row["lost"] for row in found) == sum(lost for lost, _, _ in drawn.values())


def test_those_who_are_away_are_those_of_the_query(report: Report, local: Done) -> None:
    found = report.found("FROM outages WHERE away")
    away = sum(local.summary[name] or 0 for name in ("open", "silent", "gave_up", "never_connected"))
    assert sum(row["connections"] for row in found) == away > 0
    each = report.found("EXCLUDE (resource)")
    assert len(each) == away
    assert {"client_id", "host", "region", "service_version"} <= each[0].keys()


def test_the_lost_time_is_that_of_the_query(report: Report, local: Done) -> None:
    everyone = next(row for row in report.found("allowed_minutes") if row["service"] is None)
    text = (local.out / "report.html").read_text(encoding="utf-8")
    [said] = re.findall(r'<p class="lead">.*?([\d.,]+) connection-minutes were lost of ([\d.,]+)', text)
    lost, observed = (float(each.replace(",", "")) for each in said)
    assert (lost, observed) == pytest.approx((everyone["lost_minutes"], everyone["minutes"]), rel=0.006)


def test_who_was_hit_is_that_of_the_query(report: Report) -> None:
    found = {(row["attribute"], row["value"]): row for row in report.found("hit_by")}
    assert sum(row["hit"] for (name, _), row in found.items() if name == "service.name") > 0
    for row in found.values():
        assert 0 <= row["away"] <= row["hit"] <= row["connections"]


def test_the_curve_and_the_failures_are_those_of_their_queries(report: Report) -> None:
    found = {row["downtime"]: row["share"] for row in report.found("cume_dist")}
    for point in report.rows("chart-ecdf", "points")[
        :-1
    ]:  # the last is the downtime of a disconnected client
        nearest = min(found, key=lambda downtime: abs(downtime - point["downtime"]))
        assert (point["downtime"], point["share"]) == pytest.approx((nearest, found[nearest]), rel=1e-3)
    failed = {
        f"{row['server_address']}:{row['server_port']}": row["failures"] for row in report.found("map_keys")
    }
    assert failed == {row["endpoint"]: row["failures"] for row in report.rows("chart-failures", "bars")}


def test_a_former_run_has_its_curve(spark: SparkSession, local: Done, report: Report) -> None:
    curve = data.former_ecdf(spark, local.out)
    drawn = report.rows("chart-ecdf", "points")[:-1]
    assert [point["share"] for point in curve] == pytest.approx([point["share"] for point in drawn], rel=1e-4)
    assert data.former_ecdf(spark, local.telemetry) == []
    found = job.former(Job(source="", out=local.out, baseline=local.out))
    assert found is not None
    assert found["summary"]["outages"] == local.summary["outages"]


def test_a_baseline_that_is_none_is_refused_before_spark_reads_a_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no summary\.json of a former analysis"):
        job.run(None, Job(source="", out=tmp_path, baseline=tmp_path))  # type: ignore[arg-type]
