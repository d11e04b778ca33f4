"""Prometheus's own library agrees with the client's events, through a failover too."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import haclient
from haclient import Message, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import (
    AttemptFailed,
    AttemptStarted,
    BackingOff,
    Blocked,
    Closed,
    Connected,
    Disconnected,
    Event,
    GaveUp,
    Reconnected,
    Redirected,
    Stamp,
    Unblocked,
)
from haclient.telemetry.prometheus import PrometheusSink
from haclient.telemetry.redact import Redactor
from haclient.telemetry.sink import MOST_NAMES, EventCallback
from tests.members import Members
from tests.peers import primary, url
from tests.telemetry.failing_over import FAST, Watched, fail_over
from tests.telemetry.lines import until
from tests.telemetry.metric_tables import Row, events_of_every_metric, rows

PASSWORD = "Vq7PlantedPasswordZx"
BODY = "Vq7PlantedBodyZx"
HERE = Endpoint("broker-a", 5672)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def stamp(sequence: int, connection: int = 1, episode: int = 1) -> Stamp:
    return Stamp(
        client_id="c", connection=connection, sequence=sequence, time=1e9, monotonic=5.0, episode=episode
    )


def attempt_failed(
    sequence: int, endpoint: Endpoint, kind: FailureReason = FailureReason.REFUSED
) -> AttemptFailed:
    record = AttemptRecord(number=1, endpoint=endpoint, started=1.0, ended=1.5, failure=Failure(kind=kind))
    return AttemptFailed(stamp(sequence), record)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"haclient_{name}", labels) or 0.0


def labels(registry: CollectorRegistry, name: str, label: str) -> set[str]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        sample.labels[label]
        for family in families
        for sample in family.samples
        if sample.name == f"haclient_{name}"
    }


def check_against(registry: CollectorRegistry, watched: Watched) -> None:
    """Assert that every figure equals the events' figure."""
    results = watched.results
    families = {
        each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())
    }
    attempts = [each for each in families["haclient_attempts"].samples if each.name.endswith("_total")]
    for result, count in results.items():
        assert sum(each.value for each in attempts if each.labels["result"] == result) == count, result
    assert sum(each.value for each in attempts) == results.total()
    first, second = watched.durations
    assert value(registry, "episode_duration_seconds_sum", episode="connect") == first
    assert value(registry, "episode_duration_seconds_sum", episode="reconnect") == second
    (lost,) = watched.of(Disconnected)
    (back,) = watched.of(Reconnected)
    assert isinstance(lost, Disconnected)
    assert isinstance(back, Reconnected)
    where = f"{lost.endpoint.host}:{lost.endpoint.port}"
    assert value(registry, "connections_lost_total", endpoint=where, condition=lost.condition or "") == 1
    assert value(registry, "unsettled_messages_total") == lost.unsettled
    assert value(registry, "replayed_messages_total") == back.replayed
    waits = [event for event in watched.events if isinstance(event, BackingOff)]
    counted = [value(registry, "backoff_delay_seconds_count", retry_after=each) for each in ("true", "false")]
    assert sum(counted) == len(waits)
    assert value(registry, "redirects_total", followed="true") == len(watched.of(Redirected)) > 0
    assert labels(registry, "connections", "state") == {"connected", "reconnecting"}
    assert value(registry, "connections", state="connected") == 0
    assert value(registry, "connections", state="reconnecting") == 0
    assert value(registry, "dropped_events_total") == 0


async def test_a_failover_is_counted_as_the_client_saw_it(
    members: Members, registry: CollectorRegistry
) -> None:
    watched = await fail_over(members, PrometheusSink(registry), body=BODY, password=PASSWORD)
    await until(lambda: value(registry, "connections", state="connected") == 0)
    check_against(registry, watched)
    written = generate_latest(registry).decode()
    assert PASSWORD not in written
    assert BODY not in written


async def test_a_client_that_gives_up_is_counted_with_the_cause(registry: CollectorRegistry) -> None:
    with pytest.raises(ConnectionGaveUp):
        await aio.connect(
            f"amqp://127.0.0.1:1?{FAST}", on_event=PrometheusSink(registry), startup_deadline=0.2
        )
    await until(lambda: value(registry, "gave_up_total", episode="connect", cause="deadline") == 1)
    assert value(registry, "attempts_total", endpoint="127.0.0.1:1", result="refused") > 0
    assert value(registry, "connections", state="reconnecting") == 0


async def test_several_connections_and_factories_share_a_sink(
    members: Members, registry: CollectorRegistry
) -> None:
    member = members.start("a", role="primary")
    sink = PrometheusSink(registry)
    async with (
        aio.ConnectionFactory(member.url, on_event=sink) as one,
        aio.ConnectionFactory(member.url, on_event=[sink]) as other,
        one.connect(),
        one.connect(),
        other.connect(),
    ):
        await until(lambda: value(registry, "connections", state="connected") == 3)
    await until(lambda: value(registry, "connections", state="connected") == 0)
    assert value(registry, "connections", state="reconnecting") == 0
    assert value(registry, "episode_duration_seconds_count", episode="connect") == 3


@pytest.mark.parametrize(
    "end",
    [
        lambda stamp: Unblocked(stamp, HERE, 4.0),
        lambda stamp: Disconnected(stamp, HERE, "gone", 0),
        lambda stamp: GaveUp(stamp, "internal error", None),
        Closed,
    ],
)
def test_a_primary_that_takes_no_messages_is_counted_until_it_does_or_the_connection_ends(
    registry: CollectorRegistry, end: Callable[[Stamp], Event]
) -> None:
    listen = PrometheusSink(registry).listener(Redactor())
    listen(Connected(stamp(1), HERE, 1, 2, 0.5))
    listen(Blocked(stamp(2), HERE))
    assert value(registry, "blocked_connections") == 1
    listen(end(replace(stamp(3), monotonic=9.0)))
    assert value(registry, "blocked_connections") == 0
    assert value(registry, "blocked_duration_seconds_sum") == 4


# -- names and labels -------------------------------------------------------------------------


def every_kind(listen: EventCallback) -> None:
    listen(AttemptStarted(stamp(1), 1, HERE))
    listen(attempt_failed(2, HERE))
    listen(BackingOff(stamp(3), 0.1, 0.2, None, 1))
    listen(Redirected(stamp(4), HERE, Endpoint("broker-b", 5672), followed=True))
    listen(Connected(stamp(5), HERE, 1, 2, 0.5))
    listen(Disconnected(stamp(6), HERE, "gone", 3, "amqp:connection:forced"))
    listen(GaveUp(stamp(9, episode=2), "no primary", None, "deadline", 1, 2.0))


def test_names_follow_the_conventions(registry: CollectorRegistry) -> None:
    PrometheusSink(registry)
    families = list(registry.collect())
    assert len(families) >= 13
    for family in families:
        assert family.name.startswith("haclient_")
        assert family.documentation.endswith(".")
        assert (family.type == "histogram") == (family.unit == "seconds") == family.name.endswith("_seconds")


def test_the_table_of_the_page_is_what_the_exporter_emits(registry: CollectorRegistry) -> None:
    listen = PrometheusSink(registry).listener(Redactor())
    for event in events_of_every_metric():
        listen(event)
    emitted = [
        Row(
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
            family.unit or family.documentation.split()[0].lower(),  # the counted thing
        )
        for family in registry.collect()
    ]
    assert sorted(rows("Prometheus"), key=str) == sorted(emitted, key=str)


def test_events_that_were_dropped_are_counted(registry: CollectorRegistry) -> None:
    every_kind(PrometheusSink(registry).listener(Redactor()))
    assert value(registry, "dropped_events_total") == 2


def test_labels_have_few_values(registry: CollectorRegistry) -> None:
    listen = PrometheusSink(registry).listener(Redactor())
    for number in range(10 * MOST_NAMES):
        listen(attempt_failed(2 * number + 1, Endpoint(f"h{number}", 5672)))
        listen(Disconnected(stamp(2 * number + 2), HERE, "gone", 0, f"x:{number}"))
    assert len(labels(registry, "attempts_total", "endpoint")) <= MOST_NAMES + 1
    assert len(labels(registry, "connections_lost_total", "condition")) == MOST_NAMES + 1
    assert value(registry, "attempts_total", endpoint="other", result="refused") >= 9 * MOST_NAMES


def test_a_password_that_a_peer_sends_back_is_no_label(registry: CollectorRegistry) -> None:
    redactor = Redactor()
    redactor.add("app", PASSWORD)
    listen = PrometheusSink(registry).listener(redactor)
    listen(attempt_failed(1, Endpoint(f"{PASSWORD.lower()}.example", 5672)))
    listen(Disconnected(stamp(2), HERE, f"refused {BODY}", 0, f"amqp:{PASSWORD}"))
    listen(
        GaveUp(stamp(3), f"no primary: {BODY}", Failure(kind=FailureReason.CLOSED, detail=BODY), "deadline")
    )
    written = generate_latest(registry).decode().casefold()
    assert PASSWORD.casefold() not in written
    assert BODY.casefold() not in written
    assert value(registry, "attempts_total", endpoint="other", result="refused") == 1


def test_a_second_sink_needs_a_namespace_of_its_own(registry: CollectorRegistry) -> None:
    PrometheusSink(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusSink(registry)
    listen = PrometheusSink(registry, namespace="orders").listener(Redactor())
    listen(attempt_failed(1, HERE))
    assert registry.get_sample_value(
        "orders_attempts_total", {"endpoint": "broker-a:5672", "result": "refused"}
    )


# -- a sink never harms a connection ----------------------------------------------------------


def heard(events: list[Event], kind: type[Event]) -> bool:
    return any(isinstance(event, kind) for event in events)


class Broken:
    """A sink whose listener runs a function with each event."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.heard = 0
        self._do = do

    def listener(self, redactor: Redactor) -> EventCallback:
        def listen(event: Event) -> None:
            self.heard += 1
            self._do()

        return listen


async def test_a_sink_that_raises_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    sink, events = Broken(lambda: 1 / 0), list[Event]()
    async with primary() as good:
        async with aio.connect(url(good), on_event=(sink, events.append)) as connection:
            await (await connection.create_sender("q")).send(Message(body="x"))
        await until(lambda: heard(events, Closed) and sink.heard == len(events))
    assert len([each for each in caplog.records if "an event callback failed" in each.message]) == len(events)


async def test_a_sink_that_hangs_delays_nothing() -> None:
    go_on = threading.Event()
    sink, events = Broken(lambda: go_on.wait(60)), list[Event]()
    try:
        async with primary() as good:
            async with aio.connect(url(good), on_event=(sink, events.append)) as connection:
                await (await connection.create_sender("q")).send(Message(body="x"))
                good.drop()
                await until(lambda: heard(events, Reconnected))
                await (await connection.create_sender("q")).send(Message(body="y"))
            await until(lambda: heard(events, Closed))
        await until(lambda: sink.heard == 1)
    finally:
        go_on.set()


def test_what_is_neither_a_function_nor_a_sink_is_refused() -> None:
    with pytest.raises(TypeError, match="on_event: a int is neither a function nor a sink"):
        haclient.ConnectionFactory("amqp://a", on_event=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "library"), [("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")]
)
def test_without_the_library_the_error_says_what_to_install(module: str, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import haclient.telemetry.{module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install '.[metrics]'" in done.stderr.splitlines()[-1]
