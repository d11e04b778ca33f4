"""OpenTelemetry's own SDK agrees with the client's events, through a failover too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import Histogram, Sum
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import (
    AttemptFailed,
    BackingOff,
    Closed,
    Connected,
    Disconnected,
    Event,
    GaveUp,
    Parked,
    Reconnected,
    Redirected,
    Stamp,
)
from haclient.telemetry.opentelemetry import SYSTEM, OpenTelemetrySink
from haclient.telemetry.redact import Redactor
from haclient.telemetry.schema import DATA
from tests.members import Members
from tests.telemetry.failing_over import FAST, fail_over
from tests.telemetry.lines import until
from tests.telemetry.metric_tables import Row, events_of_every_metric, rows
from tests.telemetry.recorded import Recorded

PASSWORD = "Vq7PlantedPasswordZx"
BODY = "Vq7PlantedBodyZx"
HERE, THERE = Endpoint("broker-a", 5672), Endpoint("broker-b", 5672)
# The SDK's kind of data, and whether it only grows.
TYPES = {(Sum, True): "counter", (Sum, False): "up-down counter", (Histogram, None): "histogram"}
OWN_NAMES = {"messaging.system", "haclient.episode", "haclient.backoff.retry_after"}


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with Recorded() as found:
        yield found


def sink_of(recorded: Recorded) -> OpenTelemetrySink:
    return OpenTelemetrySink(tracer_provider=recorded.tracer_provider, meter_provider=recorded.meter_provider)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def attempts(span: ReadableSpan) -> list[dict[str, Any]]:
    return [dict(event.attributes or {}) for event in span.events if event.name == "attempt"]


def stamp(sequence: int, monotonic: float = 5.0, episode: int = 1, time: float = 1e9) -> Stamp:
    return Stamp(
        client_id="c", connection=1, sequence=sequence, time=time, monotonic=monotonic, episode=episode
    )


async def test_each_episode_of_a_failover_is_a_span_with_its_attempts(
    tmp_path: Path, recorded: Recorded
) -> None:
    with Members(tmp_path) as members:
        watched = await fail_over(members, sink_of(recorded), body=BODY, password=PASSWORD)
    await until(lambda: len(recorded.spans) == 2)
    first, second = recorded.spans
    assert (first.name, second.name) == ("connect", "reconnect")
    for span, end in zip((first, second), watched.of(Connected, Reconnected), strict=True):
        assert isinstance(end, Connected | Reconnected)
        assert (span.kind, span.parent) == (SpanKind.CLIENT, None)
        assert span.status.status_code is StatusCode.UNSET
        reported = facts(span)
        assert (reported["server.address"], reported["server.port"]) == (end.endpoint.host, end.endpoint.port)
        assert reported.get("haclient.generation") == end.generation  # unknown after parking
        assert reported["haclient.attempt.number"] == end.attempts == len(attempts(span))
        assert reported["messaging.client.id"] == end.stamp.client_id
        assert "error.type" not in attempts(span)[-1]
    results = Counter(each.get("error.type", "connected") for each in attempts(first) + attempts(second))
    assert results == watched.results

    # The second span begins with the loss, and lasts as long as the downtime.
    assert second.start_time is not None
    assert second.end_time is not None
    assert (second.end_time - second.start_time) / 1e9 == pytest.approx(watched.durations[1], abs=1e-5)
    assert second.events[0].name == "lost"
    assert (facts(first)["haclient.outage.number"], facts(second)["haclient.outage.number"]) == (1, 2)
    for span in (first, second):
        assert span.start_time is not None
        assert all(span.start_time - 1000 <= event.timestamp <= span.end_time + 1000 for event in span.events)  # type: ignore[operator]

    everything = recorded.everything()
    assert PASSWORD not in everything
    assert BODY not in everything


async def test_metrics_of_a_failover_agree_with_the_events(tmp_path: Path, recorded: Recorded) -> None:
    with Members(tmp_path) as members:
        watched = await fail_over(members, sink_of(recorded))
    await until(lambda: len(recorded.spans) == 2)
    durations = {
        point.attributes["haclient.episode"]: point
        for point in recorded.points("haclient.connection.episode.duration")
    }
    assert [durations[kind].sum for kind in ("connect", "reconnect")] == watched.durations
    counted = Counter[str]()
    for point in recorded.points("haclient.connection.attempt.duration"):
        counted[point.attributes.get("error.type", "connected")] += point.count
    assert counted == watched.results
    (lost,) = recorded.points("haclient.connection.lost")
    assert lost.value == 1
    (replayed,) = recorded.points("haclient.connection.replayed")
    (back,) = watched.of(Reconnected)
    assert isinstance(back, Reconnected)
    assert replayed.value == back.replayed
    await until(lambda: {point.value for point in recorded.points("haclient.connection.count")} == {0})


async def test_a_client_that_gives_up_leaves_a_span_with_the_cause(recorded: Recorded) -> None:
    with pytest.raises(ConnectionGaveUp):
        await aio.connect(f"amqp://127.0.0.1:1?{FAST}", on_event=sink_of(recorded), startup_deadline=0.2)
    await until(lambda: recorded.spans)
    (span,) = recorded.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "deadline")
    assert facts(span)["error.type"] == "deadline"
    assert {each["error.type"] for each in attempts(span)} >= {"refused"}
    (point,) = recorded.points("haclient.connection.episode.duration")
    assert point.attributes["error.type"] == "deadline"


def every_kind(recorded: Recorded, redactor: Redactor, echo: str = "x") -> None:
    """Return every event that can contain a peer's text."""
    listen = sink_of(recorded).listener(redactor)
    failure = Failure(
        kind=FailureReason.CLOSED, detail=f"said {echo}", condition="amqp:connection:forced", retry_after=0.5
    )
    record = AttemptRecord(number=1, endpoint=HERE, started=5.1, ended=5.2, failure=failure)
    reported: list[Event] = [
        AttemptFailed(stamp(1), record),
        Redirected(stamp(2), HERE, THERE, followed=False, detail=f"to {echo}"),
        BackingOff(stamp(3), 0.1, 0.2, 0.1, 1),
        Parked(stamp(4), 2, THERE),
        Connected(stamp(5, 6.0), THERE, 2**70, 2, 1.0, cluster=f"cluster-{echo}"),
        Disconnected(stamp(6, 7.0), THERE, f"closed: {echo}", 3, f"amqp:{echo}"),
        GaveUp(stamp(7, 8.0, 2), f"no primary: {echo}", failure, "deadline", 4, 1.0),
    ]
    for event in reported:
        listen(event)


def test_attributes_are_those_of_the_conventions_or_of_the_telemetry_files(recorded: Recorded) -> None:
    every_kind(recorded, Redactor())
    known = {key.name for key in DATA} | OWN_NAMES
    names = {name for span in recorded.spans for name in facts(span)}
    names |= {name for span in recorded.spans for event in span.events for name in event.attributes or {}}
    for metric in (
        "attempt.duration",
        "episode.duration",
        "backoff.delay",
        "lost",
        "unsettled",
        "redirects",
        "count",
    ):
        (point, *_) = recorded.points(f"haclient.connection.{metric}")
        names |= set(point.attributes)
    assert names <= known
    assert {event.name for span in recorded.spans for event in span.events} == {
        "attempt",
        "redirect",
        "backoff",
        "parked",
        "lost",
    }


def test_the_table_of_the_page_is_what_the_sdk_records(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    for event in events_of_every_metric():
        listen(event)
    measured = [
        Row(
            metric.name,
            TYPES[type(metric.data), getattr(metric.data, "is_monotonic", None)],
            frozenset(name for point in metric.data.data_points for name in point.attributes) - {*SYSTEM},
            metric.unit,
        )
        for metric in recorded.metrics()
    ]
    assert sorted(rows("OpenTelemetry: connections"), key=str) == sorted(measured, key=str)


def test_a_password_that_a_peer_sends_back_is_not_written(recorded: Recorded) -> None:
    redactor = Redactor()
    redactor.add("app", PASSWORD)
    every_kind(recorded, redactor, PASSWORD)
    assert PASSWORD not in recorded.everything()


def test_the_descriptions_of_peers_are_not_written(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    failure = Failure(kind=FailureReason.CLOSED, detail=BODY, condition="amqp:decode-error")
    listen(
        AttemptFailed(stamp(1), AttemptRecord(number=1, endpoint=HERE, started=1, ended=2, failure=failure))
    )
    listen(GaveUp(stamp(2), BODY, failure, "deadline"))
    assert BODY not in recorded.everything()


def test_a_clock_that_is_set_meanwhile_bends_no_span(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    listen(Disconnected(stamp(1, monotonic=5.0), HERE, "gone", 0))
    listen(Reconnected(stamp(2, monotonic=7.5, episode=2, time=0.0), HERE, 1, 1, 2.5, 0))
    (span,) = recorded.spans
    assert span.end_time - span.start_time == 2_500_000_000  # type: ignore[operator]


def test_an_episode_that_the_application_ends_is_no_error(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    listen(Disconnected(stamp(1), HERE, "gone", 0))
    listen(Closed(stamp(2, 6.0, 2)))
    (span,) = recorded.spans
    assert span.status.status_code is StatusCode.UNSET
    assert [event.name for event in span.events] == ["lost", "closed"]


def test_closing_a_usable_connection_leaves_no_span(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    listen(Connected(stamp(1), HERE, 1, 1, 0.1))
    listen(Closed(stamp(2)))
    assert [span.name for span in recorded.spans] == ["connect"]


def test_an_end_that_was_not_heard_ends_with_the_next_loss(recorded: Recorded) -> None:
    listen = sink_of(recorded).listener(Redactor())
    listen(Disconnected(stamp(1), HERE, "gone", 0))
    listen(Disconnected(stamp(9, 9.0, 2), HERE, "gone", 0))
    assert [facts(span)["haclient.outage.number"] for span in recorded.spans] == [2]
    (dropped,) = recorded.points("haclient.connection.dropped")
    assert dropped.value == 7
