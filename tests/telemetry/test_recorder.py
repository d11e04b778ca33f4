"""Lines of clients of real members agree with their events."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import haclient
from haclient import aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import (
    AttemptFailed,
    AttemptStarted,
    Closed,
    Connected,
    Disconnected,
    Event,
    GaveUp,
    GenerationsForgotten,
    Reconnected,
    Stamp,
)
from haclient.telemetry import TelemetrySettings, flush
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from haclient.telemetry.schema import DATA, DATASCHEMA, ENVELOPE, Type
from haclient.testing.peers import deaf
from tests.members import Members
from tests.peers import primary, url
from tests.telemetry.lines import Line, lines, until, words

FAST = "backoff_base=0.01&backoff_max=0.1"
_PYTHON = {Type.STRING: str, Type.LONG: int, Type.DOUBLE: int | float, Type.BOOLEAN: bool}


def check_form(found: list[Line]) -> None:
    """Assert that every key is the schema's, and that its value has the key's type."""
    types = {key.name: _PYTHON[key.type] for key in DATA}
    for line in found:
        assert list(line) == [key.name for key in ENVELOPE] + ["data"]
        assert (line["specversion"], line["dataschema"]) == ("1.0", DATASCHEMA)
        for name, value in line["data"].items():
            assert isinstance(value, types[name]), name
            assert name == "haclient.redirect.followed" or not isinstance(value, bool), name


def check_numbers(found: list[Line]) -> None:
    """Assert that the numbers have no gap within a connection."""
    by_connection: dict[int, list[int]] = {}
    for line in found:
        data = line["data"]
        by_connection.setdefault(data["haclient.connection.number"], []).append(data["haclient.sequence"])
    for numbers in by_connection.values():
        assert numbers == list(range(1, len(numbers) + 1))


def check_against(found: list[Line], events: list[Event]) -> None:
    """Assert that the lines equal the events, with the figures that the client measured."""
    ends = [each for each in events if isinstance(each, Connected | Reconnected)]
    back = [line["data"] for line in found if words([line]) == ["connected"]]
    assert [each["haclient.outage.duration"] for each in back] == [each.duration for each in ends]
    assert [each["haclient.attempt.number"] for each in back] == [each.attempts for each in ends]
    assert [each["haclient.monotonic"] for each in back] == [each.stamp.monotonic for each in ends]
    for end, data in zip(ends, back, strict=True):
        assert (data["server.address"], data["server.port"]) == (end.endpoint.host, end.endpoint.port)
        assert data.get("haclient.generation") == end.generation
        assert data["haclient.replayed"] == getattr(end, "replayed", 0)
    lost = [line["data"] for line in found if words([line]) == ["lost"]]
    losses = [each for each in events if isinstance(each, Disconnected)]
    assert [each["haclient.unsettled"] for each in lost] == [each.unsettled for each in losses]
    assert [each["haclient.outage.number"] for each in lost] == [each.stamp.episode + 1 for each in losses]
    failed = [each.record for each in events if isinstance(each, AttemptFailed)]
    attempts = [line["data"] for line in found if words([line]) == ["attempt"]]
    for record in failed:
        written = {each["haclient.attempt.duration"] for each in attempts if "error.type" in each}
        assert record.ended - record.started in written


async def wait_for(events: list[Event], kind: type[Event], count: int = 1) -> None:
    await until(lambda: sum(isinstance(each, kind) for each in events) >= count)


async def test_a_failover_is_written_as_the_client_measured_it(members: Members, tmp_path: Path) -> None:
    primary, passive = members.pair()
    events: list[Event] = []
    folder = tmp_path / "telemetry"
    url = f"amqp://{passive.address},{primary.address}?{FAST}"
    async with aio.connect(url, telemetry=folder, on_event=events.append) as connection:
        sender = await connection.create_sender("q")
        await sender.send(haclient.Message(body="one"))
        await asyncio.to_thread(primary.kill)
        pending = await sender.submit(haclient.Message(body="two"))
        await asyncio.to_thread(passive.promote)
        await pending
        await wait_for(events, Reconnected)
    flush()
    found = lines(folder)
    check_form(found)
    check_numbers(found)
    check_against(found, events)
    happened = words(found)
    # The passive member comes first in the URL, and redirects to the primary.
    assert happened[:4] == ["attempt", "redirect", "attempt", "connected"]
    assert happened[4] == "lost"
    assert happened[-3:] == ["attempt", "connected", "closed"]
    first = found[0]["data"]
    assert first["error.type"] == "redirected"
    assert first["haclient.close.condition"] == "amqp:connection:redirect"
    assert found[1]["data"]["haclient.redirect.followed"] is True
    assert str(found[1]["data"]["haclient.redirect.port"]) == primary.address.rpartition(":")[2]
    assert "error.type" not in found[2]["data"]
    client_id = first["messaging.client.id"]
    assert [line["data"]["haclient.outage.id"] for line in found[:4]] == [f"{client_id}/1/1"] * 4
    assert {line["data"]["haclient.outage.id"] for line in found[4:]} == {f"{client_id}/1/2"}
    assert {line["data"].get("haclient.cluster") for line in found[3:]} == {"haclient"}
    for line in found:
        if words([line]) == ["backoff"]:
            data = line["data"]
            assert 0 <= data["haclient.backoff.delay"] <= data["haclient.backoff.base"] <= 0.1
            assert (data["haclient.backoff.strategy"], data["haclient.backoff.max"]) == ("adaptive", 0.1)


async def test_every_attempt_is_one_line(members: Members, tmp_path: Path) -> None:
    primary, passive = members.pair()
    events: list[Event] = []
    folder = tmp_path / "telemetry"
    async with aio.ConnectionFactory(
        f"amqp://127.0.0.1:1,{passive.address},{primary.address}?{FAST}",
        telemetry=TelemetrySettings(folder),
        on_event=events.append,
    ) as factory:
        connections = [await factory.connect() for _ in range(5)]
        await asyncio.to_thread(primary.kill)
        await wait_for(events, Disconnected, 5)
        await asyncio.to_thread(passive.promote)
        await wait_for(events, Reconnected, 5)
        for connection in connections:
            await connection.close()
    flush()
    found = lines(folder)
    check_form(found)
    check_numbers(found)
    ends = [event for event in events if isinstance(event, Connected | Reconnected)]
    assert words(found).count("connected") == len(ends)
    started = sorted(
        (event.stamp.connection, event.stamp.episode, event.attempt)
        for event in events
        if type(event).__name__ == "AttemptStarted"
    )
    written = sorted(
        (data["haclient.connection.number"], data["haclient.outage.number"], data["haclient.attempt.number"])
        for data in (line["data"] for line in found if words([line]) == ["attempt"])
    )
    assert written == started


async def test_who_gives_up_says_why_and_is_alive_no_more(tmp_path: Path) -> None:
    events: list[Event] = []
    folder = tmp_path / "telemetry"
    settings = TelemetrySettings(folder, alive_interval=0.02, service="orders")
    # The deadline ends the attempt at the silent member, the last one; that says nothing about a member.
    async with deaf.silence() as silent:
        with pytest.raises(ConnectionGaveUp):
            await aio.connect(
                f"amqp://127.0.0.1:1,{silent.host}:{silent.port}?{FAST}",
                telemetry=settings,
                on_event=events.append,
                startup_deadline=0.3,
            )
    flush()
    found = lines(folder)
    check_form(found)
    *_, last = lines(folder, "gave_up", "alive")
    assert words([last]) == ["gave_up"]
    data = last["data"]
    assert (data["haclient.close.reason"], data["error.type"]) == ("deadline", "refused")
    assert data["haclient.outage.duration"] >= 0.3
    assert data["service.name"] == "orders"
    assert all(path.name.startswith("orders-") for path in folder.iterdir())
    alive = lines(folder, "alive")
    assert {line["data"]["haclient.state"] for line in alive} == {"reconnecting"}


async def test_a_defect_of_the_client_ends_the_connection_for_telemetry_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("haclient.core.connection.episodes.Episode.run", fail)
    settings = TelemetrySettings(tmp_path / "telemetry", alive_interval=0.02)
    events: list[Event] = []
    with pytest.raises(ConnectionGaveUp, match="internal error: ZeroDivisionError"):
        await aio.connect("amqp://127.0.0.1:1", telemetry=settings, on_event=events.append)
    flush()
    *_, last = lines(tmp_path / "telemetry", "gave_up", "alive")
    assert words([last]) == ["gave_up"]
    assert last["data"]["haclient.close.reason"] == "internal-error"
    assert [event.cause for event in events if isinstance(event, GaveUp)] == ["internal-error"]


async def test_pending_attempts_end_with_the_connection(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    async with deaf.silence() as peer:
        factory = aio.ConnectionFactory(f"amqp://{peer.address}", telemetry=folder)
        connecting = asyncio.ensure_future(factory.connect())
        await until(lambda: peer.accepted)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await factory.close()
    flush()
    attempt, closed = lines(folder)
    assert words([attempt, closed]) == ["attempt", "closed"]
    assert attempt["data"]["error.type"] == FailureReason.STOPPED.value
    assert attempt["data"]["haclient.attempt.duration"] > 0


def is_connected(line: Line) -> bool:
    return bool(line["data"]["haclient.state"] == "connected")


async def test_open_connections_say_that_they_are_alive(members: Members, tmp_path: Path) -> None:
    primary = members.start("a", role="primary")
    folder = tmp_path / "telemetry"
    settings = TelemetrySettings(folder, alive_interval=0.02)
    events: list[Event] = []
    async with aio.connect(f"amqp://{primary.address}?{FAST}", telemetry=settings, on_event=events.append):
        # A busy machine may take longer to connect than to write the first line.
        await until(lambda: [line for line in lines(folder, "alive") if is_connected(line)])
        await asyncio.to_thread(primary.kill)
        await wait_for(events, Disconnected)
        await until(lambda: lines(folder, "alive")[-1]["data"]["haclient.state"] == "reconnecting")
    flush()
    found = lines(folder)
    check_form(found)
    check_numbers(found)
    alive = lines(folder, "alive")
    first, last = next(filter(is_connected, alive))["data"], alive[-1]["data"]
    assert (first["haclient.state"], first["haclient.generation"]) == ("connected", 1)
    assert first["server.address"] == "127.0.0.1"
    assert (last["haclient.outage.number"], "server.address" in last) == (2, False)


async def test_a_name_without_an_address_is_an_attempt_without_a_number(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    with pytest.raises(ConnectionGaveUp):
        await aio.connect(
            f"amqp://nowhere.invalid?{FAST}", telemetry=folder, startup_deadline=0.3, dns_timeout=0.1
        )
    flush()
    data = lines(folder, "attempt")[0]["data"]
    assert (data["error.type"], data["haclient.attempt.number"]) == ("unresolved", 0)
    assert "haclient.attempt.duration" not in data


def test_factories_of_both_apis_share_one_thread_and_one_file(members: Members, tmp_path: Path) -> None:
    primary = members.start("a", role="primary")
    folder = tmp_path / "telemetry"

    async def other_api() -> None:
        async with aio.connect(f"amqp://{primary.address}", telemetry=folder):
            pass

    with haclient.connect(f"amqp://{primary.address}", telemetry=folder):
        asyncio.run(other_api())
    flush()
    assert len(list(folder.iterdir())) == 1
    assert [thread.name for thread in threading.enumerate()].count("haclient telemetry") == 1
    assert sorted(words(lines(folder))) == sorted(["attempt", "connected", "closed"] * 2)


def test_events_that_never_came_leave_a_gap(tmp_path: Path) -> None:
    recorder = Recorder(TelemetrySettings(tmp_path), Redactor(), backoff_max=1.0)
    here = Endpoint("broker-a", 5672)

    def stamp(number: int) -> Stamp:
        return Stamp(client_id="c", connection=1, sequence=number, time=1.0, monotonic=1.0, episode=1)

    recorder.put(AttemptStarted(stamp(1), 1, here))
    recorder.put(Closed(stamp(3)))  # the second was Connected, and was dropped
    flush()
    (closed,) = lines(tmp_path)
    assert (words([closed]), closed["data"]["haclient.sequence"]) == (["closed"], 2)


async def test_messages_without_an_outcome_are_counted_where_they_end(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    async with primary(outcome=None) as peer:
        connection = await aio.connect(url(peer), telemetry=folder)
        ends, stays = [await connection.create_sender(name) for name in ("orders", "news")]
        for sender, count in ((ends, 2), (stays, 3)):
            for _ in range(count):
                await sender.submit("one")
        await peer.until(lambda: len(peer.received) == 5)
        await ends.close()
        await connection.close()
    flush()
    found = lines(folder)
    check_form(found)
    check_numbers(found)
    assert words(found)[-3:] == ["unsettled", "unsettled", "closed"]
    counts = [
        (each["data"]["haclient.unsettled"], each["data"].get("messaging.destination.name"))
        for each in found[-3:-1]
    ]
    assert counts == [(2, "orders"), (3, None)]


def test_generations_that_are_forgotten_are_written_with_the_member_that_served_last(tmp_path: Path) -> None:
    recorder = Recorder(TelemetrySettings(tmp_path), Redactor(), backoff_max=1.0)
    stamp = Stamp(client_id="orders-1", connection=1, sequence=1, time=1.0, monotonic=1.0, episode=2)
    recorder.put(GenerationsForgotten(stamp, Endpoint("broker-a", 5672), 2, "prod", 3))
    flush()
    (line,) = lines(tmp_path)
    assert words([line]) == ["generations_forgotten"]
    data = line["data"]
    assert (data["server.address"], data["server.port"], data["haclient.generation"]) == ("broker-a", 5672, 2)
    assert data["haclient.outage.id"] == "orders-1/1/2"


@pytest.mark.parametrize(("end", "kind"), [("kill", "cut"), ("stop", "close")])
async def test_a_killed_primary_and_a_stopped_one_are_told_apart(
    members: Members, tmp_path: Path, end: str, kind: str
) -> None:
    member = members.start("a", role="primary")
    async with aio.connect(f"{member.url}?{FAST}", telemetry=TelemetrySettings(tmp_path / "telemetry")):
        await asyncio.to_thread(getattr(member, end))
        await until(lambda: lines(tmp_path / "telemetry", "lost"))
    (lost,) = lines(tmp_path / "telemetry", "lost")
    assert lost["data"]["haclient.close.kind"] == kind
    assert ("haclient.close.condition" in lost["data"]) == (kind == "close")
