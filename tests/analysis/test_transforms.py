"""Each transform on a few lines made by hand."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from haclient.analysis import episodes as episodes_module
from haclient.analysis import ingest, jitter, storms
from haclient.analysis.episodes import episodes
from haclient.analysis.tables import all_tables
from haclient.telemetry.schema import KEYS, Kind

START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
SCHEMA = ", ".join(f"{key.column} {key.type.value}" for key in KEYS)

Lines = Callable[..., DataFrame]


@pytest.fixture
def lines(spark: SparkSession) -> Lines:
    """A frame of lines: a kind, seconds, and the facts that matter."""

    def made(*given: tuple[Kind, float, dict[str, Any]]) -> DataFrame:
        rows = []
        for number, (kind, at, facts) in enumerate(given, start=1):
            fixed = {
                "event_id": f"line-{number}",
                "type": kind.value,
                "time": START + timedelta(seconds=at),
                "client_id": "client",
                "instance": "one",
                "connection": 1,
                "outage": 2,
                "sequence": number,
                "monotonic": 1000.0 + at,
                "cluster": "orders",
            }
            known = fixed | facts
            rows.append(tuple(known.get(key.column) for key in KEYS))
        return spark.createDataFrame(rows, SCHEMA).withColumn("date", sf.to_date("time"))

    return made


def storms_of(events: DataFrame) -> DataFrame:
    """Each part is read several times: without a checkpoint all before it is computed again for each."""
    kept = events.localCheckpoint()
    return storms.storms(episodes(kept).localCheckpoint(), kept)


def only_row(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.collect()
    return row.asDict()


def test_time_away_is_immune_to_a_step_of_the_wall_clock(lines: Lines) -> None:
    row = only_row(
        episodes(
            lines(
                (Kind.LOST, 0.0, {"monotonic": 50.0}),
                (Kind.CONNECTED, -3600.0, {"monotonic": 52.5, "outage_duration": 2.5}),
            )
        )
    )
    assert (row["time_away"], row["clock"], row["outcome"]) == (2.5, "monotonic", "back")


def test_a_client_that_does_not_say_how_long_it_was_away_has_the_clock_of_two_lines(lines: Lines) -> None:
    row = only_row(episodes(lines((Kind.LOST, 0.0, {}), (Kind.CONNECTED, 1.5, {}))))
    assert (row["time_away"], row["clock"]) == (1.5, "monotonic")


def test_without_the_line_of_the_loss_the_client_says_how_long_it_was_away(lines: Lines) -> None:
    row = only_row(episodes(lines((Kind.CONNECTED, 3.0, {"outage_duration": 1.5}))))
    assert (row["time_away"], row["clock"], row["lost_at"]) == (1.5, "monotonic", None)


def test_without_a_monotonic_clock_the_wall_clock_has_to_do(lines: Lines) -> None:
    found = lines((Kind.LOST, 1.0, {"monotonic": None}), (Kind.CONNECTED, 3.25, {"monotonic": None}))
    row = only_row(episodes(found))
    assert (row["time_away"], row["clock"]) == (2.25, "wall")


def test_a_later_outage_proves_that_the_client_was_back(lines: Lines) -> None:
    found = episodes(lines((Kind.LOST, 0.0, {"outage": 2}), (Kind.LOST, 9.0, {"outage": 3})))
    outcomes = {row["outage"]: (row["outcome"], row["time_away"]) for row in found.collect()}
    assert outcomes == {2: ("back", None), 3: ("open", None)}


@pytest.mark.parametrize(
    ("last", "seconds", "outcome"),
    [
        (Kind.GAVE_UP, 0.0, "gave_up"),
        (Kind.CLOSED, 0.0, "closed"),
        (Kind.BACKOFF, 119.0, "open"),
        (Kind.BACKOFF, 121.0, "never_came_back"),
    ],
)
def test_how_an_outage_without_a_return_ended(lines: Lines, last: Kind, seconds: float, outcome: str) -> None:
    found = lines((Kind.LOST, 0.0, {}), (last, 1.0, {}))
    row = only_row(episodes(found, as_of=START + timedelta(seconds=1 + seconds)))
    assert row["outcome"] == outcome


def test_attempts_reasons_hints_and_members_are_counted(lines: Lines) -> None:
    a, b = ({"server_address": name, "server_port": 5672, "attempt_duration": 0.5} for name in "ab")
    found = lines(
        (Kind.LOST, 0.0, a | {"generation": 4, "unsettled": 7, "reason": "eof", "attempt_duration": None}),
        (Kind.BACKOFF, 0.0, {"backoff_delay": 0.25}),
        (Kind.ATTEMPT, 1.0, a | {"error_type": "refused"}),
        (Kind.ATTEMPT, 2.0, a | {"error_type": "refused"}),
        (Kind.REDIRECT, 3.0, b),
        (Kind.ATTEMPT, 3.0, b | {"error_type": "redirected"}),
        (Kind.BACKOFF, 3.0, {"backoff_delay": 0.5, "hint": 0.4}),
        (Kind.ATTEMPT, 4.0, b),
        (Kind.CONNECTED, 4.0, b | {"generation": 5, "replayed": 7, "attempt_duration": None}),
    )
    row = only_row(episodes(found))
    assert row["reasons"] == {"refused": 2, "redirected": 1}
    assert (row["attempts"], row["redirects"], row["members_tried"]) == (4, 1, 2)
    assert (row["backoffs"], row["hints_obeyed"], row["backoff_total"]) == (2, 1, 0.75)
    assert (row["generation_before"], row["generation_after"]) == (4, 5)
    assert (row["endpoint_before"], row["endpoint_after"]) == ("a:5672", "b:5672")
    assert (row["unsettled"], row["replayed"], row["lost_reason"]) == (7, 7, "eof")
    assert row["first_attempt_at"] == row["lost_at"] + timedelta(seconds=0.5)


def test_a_client_that_starts_again_under_its_name_is_another_connection(lines: Lines) -> None:
    first = {"outage": 1, "outage_duration": 0.1}
    found = lines((Kind.CONNECTED, 0.0, first), (Kind.CONNECTED, 9.0, first | {"instance": "two"}))
    assert episodes(found).count() == 2


def losses(lines: Lines, *at: float, cluster: str | None = "orders") -> DataFrame:
    facts: list[tuple[Kind, float, dict[str, Any]]] = []
    for number, second in enumerate(at):
        who = {"client_id": f"client-{number}", "cluster": cluster}
        facts += [(Kind.LOST, second, who), (Kind.CONNECTED, second + 10, who)]
    return lines(*facts)


@pytest.mark.parametrize(
    ("at", "hit"),
    [
        ((0.0, 4.0, 9.0), [3]),  # each within 5 s of the one before
        ((0.0, 1.0, 6.5, 7.0), [2, 2]),
        ((0.0, 5.5), []),  # one connection is no storm
    ],
)
def test_losses_near_each_other_are_one_storm(lines: Lines, at: tuple[float, ...], hit: list[int]) -> None:
    events = losses(lines, *at)
    found = storms_of(events).orderBy("started_at")
    assert [row["clients_hit"] for row in found.collect()] == hit


def test_connections_that_know_no_cluster_have_storms_as_well(lines: Lines) -> None:
    events = losses(lines, 0.0, 1.0, 2.0, cluster=None)
    row = only_row(storms_of(events))
    assert (row["cluster"], row["clients_hit"], row["back_50"], row["back_100"]) == (None, 3, 11.0, 12.0)
    assert (row["setup_rate"], row["ideal"], row["ratio_to_ideal"]) == (1.0, 3.0, 4.0)


def test_a_share_that_never_came_back_has_no_time(lines: Lines) -> None:
    gone = {"client_id": "gone"}
    back = {"client_id": "back"}
    events = lines((Kind.LOST, 0.0, gone), (Kind.LOST, 1.0, back), (Kind.CONNECTED, 3.0, back))
    row = only_row(storms_of(events))
    assert (row["back_50"], row["back_90"], row["never_back"]) == (3.0, None, 1)


def backoffs(lines: Lines, ratios: list[float]) -> DataFrame:
    drawn = {"backoff_base": 2.0, "backoff_round": 1, "backoff_strategy": "full", "backoff_max": 2.0}
    return lines(*((Kind.BACKOFF, 0.0, drawn | {"backoff_delay": 2.0 * ratio}) for ratio in ratios))


def test_delays_that_are_spread_evenly_have_a_small_distance(lines: Lines) -> None:
    row = only_row(jitter.jitter(backoffs(lines, [(place + 0.5) / 50 for place in range(50)])))
    assert row["ks_statistic"] == pytest.approx(0.01)
    assert row["mean_ratio"] == pytest.approx(0.5)
    assert row["ks_statistic"] < row["ks_critical"]


def test_delays_clipped_after_the_draw_are_found(lines: Lines) -> None:
    row = only_row(jitter.jitter(backoffs(lines, [0.1, 0.2, *([1.0] * 38)])))
    assert row["ks_statistic"] == pytest.approx(0.95)
    assert row["at_cap_share"] == 38 / 40
    assert row["synchronisation_index"] == 1.0
    assert row["ks_statistic"] > row["ks_critical"]


def test_a_lower_generation_and_a_split_are_alarms(lines: Lines) -> None:
    a, b = ({"server_address": name, "server_port": 1, "client_id": name} for name in "ab")
    found = lines(
        (Kind.LOST, 0.0, a | {"generation": 5}),
        (Kind.CONNECTED, 10.0, a | {"generation": 4}),
        (Kind.CONNECTED, 20.0, b | {"generation": 4}),
        (Kind.CONNECTED, 30.0, a | {"generation": 4, "outage": 3}),
    )
    kinds = {row["kind"]: row["endpoints"] for row in all_tables(found)["alarms"].collect()}
    assert kinds == {
        "split_claim": ["a:1", "b:1"],
        "generation_backwards": ["a:1"],
        "lost_telemetry": [],  # the numbers of a are 1, 2 and 4
    }


def test_bad_lines_are_kept_with_their_file_and_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    good = (
        '{"id": "1", "type": "haclient.connection.closed", "time": "2026-11-21T02:00:00.5Z", "new": {"x": 1}}'
    )
    bad = {
        '{"id": "2", "type": "haclient.conn': "not JSON, or cut short",
        '{"type": "t", "time": "2026-11-21T02:00:00Z"}': "no id or no type",
        '{"id": "3", "type": "t", "time": "noon"}': "no time, or not one of RFC 3339",
        '{"id": "4", "type": "t", "time": "2026-11-21T02:00:00Z", "data": {"haclient.sequence": "x"}}': (
            "a value of another type than the schema's"
        ),
    }
    (tmp_path / "some.jsonl").write_text("\n".join([good, "", good, *bad]))
    found = ingest.read(spark, str(tmp_path))
    assert [row["event_id"] for row in found.events.collect()] == ["1"]
    quarantined = found.quarantine.collect()
    assert {row["line"]: row["why"] for row in quarantined} == bad
    assert all(row["file"].endswith("some.jsonl") for row in quarantined)


def test_a_compressed_file_that_is_cut_short_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = '{{"id": "{}", "type": "t", "time": "2026-11-21T02:00:00Z"}}\n'
    text = "".join(line.format(f"{number}-{number * 7919}") for number in range(20_000)).encode()
    packed = gzip.compress(text)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "whole.jsonl.gz").write_bytes(gzip.compress(line.format("whole").encode()))
    (tmp_path / "no.jsonl.gz").write_bytes(b"this is not compressed at all")
    (tmp_path / "plain.jsonl").write_text(line.format("plain"))
    found = ingest.read(spark, str(tmp_path))
    bad = {Path(row["file"]).name: row["why"] for row in found.quarantine.collect()}
    assert bad.keys() == {"cut.jsonl.gz", "no.jsonl.gz"}
    assert "cut short" in bad["cut.jsonl.gz"]
    ids = {row["event_id"] for row in found.events.select("event_id").collect()}
    assert {"whole", "plain"} < ids
    assert len(ids) < 20_000


def test_more_errors_and_endpoints_than_there_are_counters_for_are_counted_as_well(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ({"server_address": name, "server_port": 5672} for name in "ab")
    found = lines(
        (Kind.ATTEMPT, 0.0, one | {"error_type": "refused"}),
        (Kind.ATTEMPT, 1.0, one | {"error_type": "refused"}),
        (Kind.ATTEMPT, 2.0, two | {"error_type": "closed"}),
        (Kind.LOST, 3.0, {"outage": 3}),
    )
    few = episodes(found).orderBy("outage").collect()
    monkeypatch.setattr(episodes_module, "FEW_ERRORS", 1)
    monkeypatch.setattr(episodes_module, "FEW_PLACES", 1)
    many = episodes(found).orderBy("outage").collect()
    assert [row["reasons"] for row in few] == [{"closed": 1, "refused": 2}, {}]
    assert [row["members_tried"] for row in few] == [2, 0]
    assert many == few


@pytest.mark.parametrize("slow", [-3.0, -4.5])
def test_a_client_whose_clock_is_slow_does_not_move_the_start_of_a_storm(lines: Lines, slow: float) -> None:
    events = losses(lines, slow, *(place / 10 for place in range(10)))
    row = only_row(storms_of(events))
    assert (row["clients_hit"], row["started_at"].timestamp()) == (11, START.timestamp())


def test_the_ratio_to_the_ideal_is_of_those_that_came_back(lines: Lines) -> None:
    who = [{"client_id": f"client-{number}"} for number in range(3)]
    events = lines(
        *((Kind.LOST, 0.0, one) for one in who),
        (Kind.CONNECTED, 2.0, who[0]),
        (Kind.CONNECTED, 4.0, who[1]),
    )
    row = only_row(storms_of(events))
    assert (row["back_100"], row["last_back"], row["never_back"]) == (None, 4.0, 1)
    assert (row["setup_rate"], row["ideal"], row["ratio_to_ideal"]) == (1.0, 3.0, 2.0)


def test_two_claims_that_touch_may_be_of_two_clocks(lines: Lines) -> None:
    a, b = ({"server_address": name, "server_port": 1, "generation": 4} for name in "ab")
    found = lines((Kind.CONNECTED, 0.0, a), (Kind.CONNECTED, 20.0, a), (Kind.CONNECTED, 17.0, b))
    assert all_tables(found)["alarms"].where("kind = 'split_claim'").count() == 0


def test_a_store_is_not_searched_for_copies_again(lines: Lines, spark: SparkSession, tmp_path: Path) -> None:
    events = losses(lines, 0.0, 1.0)
    ingest.store(events, str(tmp_path / "store"))
    again = ingest.read(spark, str(tmp_path / "store")).events
    assert again.schema["event_id"].metadata == ingest.UNIQUE
    assertDataFrameEqual(again, events.select(again.columns))
    assert len(list((tmp_path / "store").glob("date=*/*.parquet"))) == 1


def test_two_stores_together_are_searched_for_copies(
    lines: Lines, spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        ingest.store(losses(lines, 0.0, 1.0), str(tmp_path / name))
    assert ingest.read(spark, [str(tmp_path / "one"), str(tmp_path / "two")]).events.count() == 4
