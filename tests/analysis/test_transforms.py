"""Each transform on a few lines made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.tables import episodes as episodes_module
from haclient.analysis.tables.build import Options
from haclient.analysis.tables.episodes import episodes
from haclient.analysis.tables.summary import of_episodes
from haclient.telemetry.schema import Kind
from tests.analysis.stories import START, Line, Stories, all_tables, framed, rows

SILENCE = 120.0
AS_OF = 122.0  # s

Tables = dict[str, list[dict[str, Any]]]

STORIES = Stories()


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[Tables]:
    """The tables of all stories."""
    options = Options(as_of=START + timedelta(seconds=AS_OF), silence=SILENCE)
    made = all_tables(STORIES.frame(spark), options)
    names = ("episodes", "jitter", "alarms", "not_recovered")
    found = {name: [row.asDict() for row in made[name].collect()] for name in names}
    of_ends = of_episodes(made["episodes"].where(sf.col("cluster") == ENDS))
    yield found | {"summary of ends": [row.asDict() for row in of_ends.collect()]}
    spark.catalog.clearCache()


def of(table: list[dict[str, Any]], story: str | None) -> list[dict[str, Any]]:
    """Return the rows of one story."""
    return [row for row in table if row["cluster"] == story]


STEP = STORIES.tell(
    "a clock is set back",
    [
        (Kind.LOST, 0.0, {"monotonic": 50.0}),
        (Kind.CONNECTED, -3600.0, {"monotonic": 52.5, "outage_duration": 2.5}),
    ],
)


def test_downtime_is_immune_to_a_step_of_the_wall_clock(tables: Tables) -> None:
    (row,) = of(tables["episodes"], STEP)
    assert (row["downtime"], row["clock"], row["episode_result"]) == (2.5, "monotonic", "back")


SILENT = STORIES.tell("no duration", [(Kind.LOST, 0.0, {}), (Kind.CONNECTED, 1.5, {})])


def test_a_client_that_reports_no_downtime_has_the_clock_of_two_lines(tables: Tables) -> None:
    (row,) = of(tables["episodes"], SILENT)
    assert (row["downtime"], row["clock"]) == (1.5, "monotonic")


NO_LOSS = STORIES.tell("no loss", [(Kind.CONNECTED, 3.0, {"outage_duration": 1.5})])


def test_without_the_line_of_the_loss_the_client_reports_its_downtime(tables: Tables) -> None:
    (row,) = of(tables["episodes"], NO_LOSS)
    assert (row["downtime"], row["clock"], row["lost_at"]) == (1.5, "monotonic", None)


NO_CLOCK = STORIES.tell("no clock", [(Kind.LOST, 1.0, {}), (Kind.CONNECTED, 3.25, {})], monotonic=None)


def test_without_a_monotonic_clock_the_wall_clock_has_to_do(tables: Tables) -> None:
    (row,) = of(tables["episodes"], NO_CLOCK)
    assert (row["downtime"], row["clock"]) == (2.25, "wall")


LATER = STORIES.tell("a later outage", [(Kind.LOST, 0.0, {"outage": 2}), (Kind.LOST, 9.0, {"outage": 3})])


def test_a_later_outage_proves_that_the_client_was_back(tables: Tables) -> None:
    found = of(tables["episodes"], LATER)
    results = {row["outage"]: (row["episode_result"], row["downtime"]) for row in found}
    assert results == {2: ("back", None), 3: ("open", None)}


def renewed(name: str, attempts: int) -> str:
    """Return a planned reconnect with a new token, which took so many attempts."""
    tried = [(Kind.ATTEMPT, 1.0, {}) for _ in range(attempts)]
    return STORIES.tell(
        name, [(Kind.LOST, 0.0, {"close_kind": "renewal"}), *tried, (Kind.CONNECTED, 2.0, {})]
    )


AT_ONCE, LATE = renewed("renewed", 1), renewed("renewed while the primary died", 2)


def test_a_renewal_is_an_outage_only_if_its_first_attempt_failed(tables: Tables) -> None:
    assert of(tables["episodes"], AT_ONCE) == []
    (row,) = of(tables["episodes"], LATE)
    assert (row["lost_kind"], row["attempts"], row["downtime"]) == ("renewal", 2, 2.0)


def ended(name: str, last: Kind, quiet: float) -> str:
    """Return a loss, and a last line that many seconds before the end."""
    return STORIES.tell(name, [(Kind.LOST, 0.0, {}), (last, AS_OF - quiet, {})])


@pytest.mark.parametrize(
    ("story", "episode_result"),
    [
        (ended("gave up", Kind.GAVE_UP, 0.0), "gave_up"),
        (ended("closed", Kind.CLOSED, 0.0), "closed"),
        (ended("heard of", Kind.BACKOFF, SILENCE - 1.0), "open"),
        (ended("not heard of", Kind.BACKOFF, SILENCE + 1.0), "silent"),
    ],
)
def test_how_an_outage_without_a_return_ended(tables: Tables, story: str, episode_result: str) -> None:
    (row,) = of(tables["episodes"], story)
    assert row["episode_result"] == episode_result


LEFT = STORIES.tell(
    "messages are left",
    [
        (Kind.LOST, 0.0, {"unsettled": 4}),
        (Kind.UNSETTLED, 1.0, {"unsettled": 2, "queue": "orders"}),
        (Kind.GENERATIONS_FORGOTTEN, 2.0, {"generation": 9}),
        (Kind.UNSETTLED, 3.0, {"unsettled": 6}),
        (Kind.GAVE_UP, 3.0, {}),
    ],
)


def test_messages_that_are_left_at_the_end_are_none_of_the_loss(tables: Tables) -> None:
    (row,) = of(tables["episodes"], LEFT)
    assert (row["unsettled"], row["generation_after"], row["episode_result"]) == (4, None, "gave_up")


def one(client: str, *lines: tuple[Kind, float], **everywhere: Any) -> list[Line]:
    return [(kind, at, {"client_id": client} | everywhere) for kind, at in lines]


ENDS = STORIES.tell(
    "ends",
    [
        *one("back", (Kind.LOST, 0.0), (Kind.CONNECTED, 5.0)),
        *one("back, after all", (Kind.LOST, 0.0), (Kind.GAVE_UP, 1.0)),
        *one("back, after all", (Kind.LOST, 9.0), (Kind.CONNECTED, 10.0), outage=3),
        (Kind.LOST, 0.0, {"client_id": "back, it says"}),
        (Kind.ALIVE, 60.0, {"client_id": "back, it says", "state": "connected"}),
        *one("gave up", (Kind.LOST, 0.0), (Kind.GAVE_UP, 3.0), (Kind.CLOSED, 4.0)),
        *one("closed", (Kind.LOST, 0.0), (Kind.CLOSED, 3.0)),
        *one("closed", (Kind.CONNECTED, 9.0), instance="two", outage=1),
        *one("replaced", (Kind.LOST, 0.0), (Kind.BACKOFF, 110.0)),
        *one("replaced", (Kind.CONNECTED, 111.0), instance="two", outage=1),
        *one("replaced while it died", (Kind.LOST, 0.0), (Kind.BACKOFF, 1.0)),
        *one("replaced while it died", (Kind.CONNECTED, 0.5), instance="two", outage=1),
        *one("open", (Kind.LOST, 0.0), (Kind.BACKOFF, 2.0)),
        *one("open beside another", (Kind.LOST, 0.0), (Kind.BACKOFF, 100.0)),
        *one("open beside another", (Kind.CONNECTED, 50.0), instance="two", outage=1),
        *one("silent", (Kind.LOST, 0.0), (Kind.BACKOFF, 1.9)),
        *one("silent, and older", (Kind.LOST, 1.0)),
        *one("silent, and older", (Kind.CONNECTED, 0.0), instance="two", outage=1),
        *one("never there", (Kind.ATTEMPT, 61.9), (Kind.GAVE_UP, 62.0), outage=1),
        *one("too young to say", (Kind.ATTEMPT, 62.0), outage=1),
        *one("there, the line is lost", (Kind.ATTEMPT, 0.0), outage=1),
        *one("there, the line is lost", (Kind.LOST, 8.0), (Kind.CONNECTED, 9.0)),
    ],
)


def test_every_outage_ends_in_exactly_one_of_six_ways(tables: Tables) -> None:
    outages = [row for row in of(tables["episodes"], ENDS) if not row["first_connect"]]
    found = {
        (row["client_id"].removesuffix(" of ends"), row["outage"]): (
            row["episode_result"],
            row["longer_than"],
        )
        for row in outages
    }
    assert found == {
        ("back", 2): ("back", None),
        ("back, after all", 2): ("back", None),
        ("back, after all", 3): ("back", None),
        ("back, it says", 2): ("back", None),
        ("gave up", 2): ("gave_up", AS_OF),
        ("closed", 2): ("closed", None),
        ("replaced", 2): ("replaced", None),
        ("replaced while it died", 2): ("replaced", None),
        ("open", 2): ("open", AS_OF),
        ("open beside another", 2): ("open", AS_OF),
        ("silent", 2): ("silent", AS_OF),
        ("silent, and older", 2): ("silent", AS_OF - 1.0),
        ("there, the line is lost", 2): ("back", None),
    }
    (counted,) = tables["summary of ends"]
    ways = ("back", "gave_up", "closed", "replaced", "open", "silent")
    assert tuple(counted[way] for way in ways) == (5, 1, 1, 2, 2, 2)
    assert counted["outages"] == sum(counted[way] for way in ways) == len(outages)
    assert counted["back_untimed"] == 2


def test_a_first_connect_that_is_not_back_after_a_minute_never_was(tables: Tables) -> None:
    never = [row["client_id"] for row in of(tables["episodes"], ENDS) if row["never_connected"]]
    assert never == ["never there of ends"]
    assert tables["summary of ends"][0]["never_connected"] == 1
    gone = {row["client_id"].removesuffix(" of ends") for row in of(tables["not_recovered"], ENDS)}
    away = {"gave up", "silent", "silent, and older", "open", "open beside another", "never there"}
    assert gone == away


AWAY_A, AWAY_B = ({"server_address": name, "server_port": 5672} for name in "ab")
TWO = {"client_id": "two", "instance": "two"}
LAST_ERROR = STORIES.tell(
    "a last error",
    [
        (Kind.LOST, 0.0, AWAY_A),
        (Kind.ATTEMPT, 1.0, AWAY_A | {"error_type": "refused"}),
        (Kind.ATTEMPT, 2.0, AWAY_A | {"error_type": "authentication"}),
        (Kind.ATTEMPT, 3.0, AWAY_B | {"error_type": "redirected"}),
        (Kind.ATTEMPT, 4.0, AWAY_B | {"error_type": "lost-race"}),
        (Kind.LOST, 0.0, TWO | AWAY_A),
        (Kind.ATTEMPT, 1.0, TWO | AWAY_A | {"error_type": "lost-race"}),
        (Kind.ATTEMPT, 3.0, TWO | AWAY_B | {"error_type": "redirected"}),
        (Kind.LOST, 0.0, AWAY_A | {"client_id": "three", "instance": "three"}),
    ],
)


def test_the_last_error_is_the_last_that_explains_with_the_endpoint_where_it_was_met(tables: Tables) -> None:
    """Redirects, and ends that the client itself caused, count only if there is no other error."""
    found = {row["instance"]: row for row in of(tables["not_recovered"], LAST_ERROR)}
    said = {name: (row["last_error"], row["last_endpoint"]) for name, row in found.items()}
    assert said == {
        "one": ("authentication", "a:5672"),
        "two": ("redirected", "b:5672"),
        "three": (None, "a:5672"),
    }


A, B = ({"server_address": name, "server_port": 5672, "attempt_duration": 0.5} for name in "ab")
SEARCH = STORIES.tell(
    "a search",
    [
        (Kind.LOST, 0.0, A | {"generation": 4, "unsettled": 7, "reason": "eof", "attempt_duration": None}),
        (Kind.BACKOFF, 0.0, {"backoff_delay": 0.25}),
        (Kind.ATTEMPT, 1.0, A | {"error_type": "refused"}),
        (Kind.ATTEMPT, 2.0, A | {"error_type": "refused"}),
        (Kind.REDIRECT, 3.0, B),
        (Kind.ATTEMPT, 3.0, B | {"error_type": "redirected"}),
        (Kind.BACKOFF, 3.0, {"backoff_delay": 0.5, "retry_after": 0.4}),
        (Kind.ATTEMPT, 4.0, B),
        (Kind.CONNECTED, 4.0, B | {"generation": 5, "replayed": 7, "attempt_duration": None}),
    ],
)


def test_attempts_reasons_retry_afters_and_members_are_counted(tables: Tables) -> None:
    (row,) = of(tables["episodes"], SEARCH)
    assert row["reasons"] == {"refused": 2, "redirected": 1}
    assert (row["attempts"], row["redirects"], row["members_tried"]) == (4, 1, 2)
    assert (row["backoffs"], row["retry_after_honored"], row["backoff_total"]) == (2, 1, 0.75)
    assert (row["generation_before"], row["generation_after"]) == (4, 5)
    assert (row["endpoint_before"], row["endpoint_after"]) == ("a:5672", "b:5672")
    assert (row["unsettled"], row["replayed"], row["lost_reason"]) == (7, 7, "eof")
    assert row["first_attempt_at"] == row["lost_at"] + timedelta(seconds=0.5)


AGAIN = STORIES.tell(
    "a restart",
    [(Kind.CONNECTED, 0.0, {}), (Kind.CONNECTED, 9.0, {"instance": "two"})],
    outage=1,
    outage_duration=0.1,
)


def test_a_client_that_starts_again_under_its_name_is_another_connection(tables: Tables) -> None:
    assert len(of(tables["episodes"], AGAIN)) == 2


def drawn(name: str, base: float, ratios: list[float]) -> float:
    """Return delays of one base; no other story has it."""
    facts = {"backoff_base": base, "backoff_round": 1, "backoff_strategy": "full", "backoff_max": base}
    STORIES.tell(name, ((Kind.BACKOFF, 0.0, facts | {"backoff_delay": base * ratio}) for ratio in ratios))
    return base


EVEN = drawn("even delays", 2.0, [(place + 0.5) / 50 for place in range(50)])
CLIPPED = drawn("clipped delays", 4.0, [0.1, 0.2, *([1.0] * 48)])


def test_delays_that_are_spread_evenly_have_a_small_distance(tables: Tables) -> None:
    (row,) = (row for row in tables["jitter"] if row["backoff_base"] == EVEN)
    assert row["ks_statistic"] == pytest.approx(0.01)
    assert row["mean_ratio"] == pytest.approx(0.5)
    assert (row["judged"], row["verdict"]) == (50, "as promised")


def test_delays_clipped_after_the_draw_are_found(tables: Tables) -> None:
    (row,) = (row for row in tables["jitter"] if row["backoff_base"] == CLIPPED)
    assert row["ks_statistic"] == pytest.approx(0.96)
    assert row["at_cap_share"] == 48 / 50
    assert row["synchronisation_index"] == 1.0
    assert row["verdict"] == "marked"


def claim(endpoint: str, at: float, generation: int = 4, **facts: Any) -> Line:
    place = {"server_address": endpoint, "server_port": 1, "client_id": endpoint}
    return Kind.CONNECTED, at, place | {"generation": generation} | facts


SPLIT = STORIES.tell(
    "a split",
    [
        (Kind.LOST, *claim("a", 0.0, 5)[1:]),
        claim("a", 10.0),
        claim("b", 20.0),
        claim("a", 30.0, outage=3),
    ],
)


def test_a_lower_generation_and_a_split_are_alarms(tables: Tables) -> None:
    kinds = {row["kind"]: row["endpoints"] for row in of(tables["alarms"], SPLIT)}
    assert kinds == {
        "split_claim": ["a:1", "b:1"],
        "generation_backwards": ["a:1"],
        "lost_telemetry": [],  # the numbers of a are 1, 2 and 4
    }


TOUCHING = STORIES.tell("claims that touch", [claim("a", 0.0), claim("a", 20.0), claim("b", 17.0)])


def test_two_claims_that_touch_may_be_of_two_clocks(tables: Tables) -> None:
    assert "split_claim" not in {row["kind"] for row in of(tables["alarms"], TOUCHING)}


@pytest.mark.slow
def test_more_errors_and_endpoints_than_there_are_counters_for_are_counted_as_well(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ({"server_address": name, "server_port": 5672} for name in "ab")
    lines: list[Line] = [
        (Kind.ATTEMPT, 0.0, one | {"error_type": "refused"}),
        (Kind.ATTEMPT, 1.0, one | {"error_type": "refused"}),
        (Kind.ATTEMPT, 2.0, two | {"error_type": "closed"}),
        (Kind.LOST, 3.0, {"outage": 3}),
    ]
    found = framed(spark, rows("many", lines))
    few = episodes(found).orderBy("outage").collect()
    monkeypatch.setattr(episodes_module, "FEW_ERRORS", 1)
    monkeypatch.setattr(episodes_module, "FEW_ENDPOINTS", 1)
    many = episodes(found).orderBy("outage").collect()
    assert [row["reasons"] for row in few] == [{"closed": 1, "refused": 2}, {}]
    assert [row["members_tried"] for row in few] == [2, 0]
    assert many == few
