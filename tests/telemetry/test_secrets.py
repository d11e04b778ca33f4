"""Secrets are planted, and all written telemetry is searched for them."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from haclient import Credentials, Message, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import AttemptFailed, Connected, Disconnected, GaveUp, Redirected, Stamp
from haclient.telemetry import TelemetrySettings, flush
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from tests.members import Members
from tests.telemetry.lines import lines, text, words

PASSWORD = "Vq7PlantedPasswordZx"
WRONG = "Vq7PlantedWrongPasswordZx"
TOKEN = "Vq7PlantedTokenZx"
BODY = "Vq7PlantedBodyZx"
FAST = "backoff_base=0.01&backoff_max=0.1"


def check_clean(folder: Path, *secrets: str) -> None:
    flush()
    found = text(folder).casefold()
    assert found
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode().rstrip("=")):
            assert form.casefold() not in found


async def test_a_run_with_failover_and_refused_credentials_writes_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    with Members(tmp_path) as members:
        primary, passive = members.pair(
            users={"app": PASSWORD, "token": TOKEN}, anonymous=False, telemetry=folder
        )
        plain = f"{FAST}&sasl_mechanisms=PLAIN"
        url = f"amqp://app:{PASSWORD}@{passive.address},{primary.address}?{plain}"
        async with aio.connect(url, telemetry=folder) as connection:
            sender = await connection.create_sender("q")
            await sender.send(Message(body=BODY))
            await asyncio.to_thread(primary.kill)
            pending = await sender.submit(Message(body=BODY))
            await asyncio.to_thread(passive.promote)
            await pending
        with pytest.raises(ConnectionGaveUp):
            await aio.connect(
                f"amqp://{passive.address}?{plain}",
                credentials=Credentials(user="app", password=WRONG),
                telemetry=folder,
            )

        def broken() -> Credentials:
            raise ValueError(f"the vault said {TOKEN}")

        with pytest.raises(ValueError, match="the vault said"):
            await aio.connect(
                f"amqp://{passive.address}?{plain}",
                credentials=broken,
                telemetry=folder,
                startup_deadline=0.2,
            )
        async with aio.connect(
            f"amqp://{passive.address}?{plain}",
            credentials=lambda: Credentials(user="token", password=TOKEN),
            telemetry=folder,
        ):
            pass
    check_clean(folder, PASSWORD, WRONG, TOKEN, BODY)
    assert {"attempt", "connected", "lost", "gave_up", "admitted", "role"} <= set(words(lines(folder)))
    assert "ValueError in the application's callable" in text(folder)


def recorder(folder: Path, *public: str, password: str | None = None) -> Recorder:
    redactor = Redactor(public)
    redactor.add("app", password)
    return Recorder(TelemetrySettings(folder), redactor, backoff_max=1.0)


def stamp(number: int) -> Stamp:
    return Stamp(client_id="c", connection=1, sequence=number, time=1e9, monotonic=1.0, episode=1)


@pytest.mark.parametrize("echo", ["{}", "refused 'user={} code 7'", "x{}x"])
def test_the_descriptions_of_peers_are_never_written(tmp_path: Path, echo: str) -> None:
    """A peer may quote the client's data: a secret body, or a password in any form."""
    sink = recorder(tmp_path, password=PASSWORD)
    here = Endpoint("broker-a", 5672)
    heard = echo.format(BODY)
    for kind in (
        FailureReason.CLOSED,
        FailureReason.NOT_AMQP,
        FailureReason.ENDED,
        FailureReason.AUTHENTICATION,
    ):
        failure = Failure(kind=kind, detail=f"amqp:decode-error: {heard}", condition="amqp:decode-error")
        record = AttemptRecord(number=1, endpoint=here, started=0.0, ended=1.0, failure=failure)
        sink.put(AttemptFailed(stamp(1), record))
    sink.put(Disconnected(stamp(2), here, f"amqp:decode-error: {heard}", 0, "amqp:decode-error"))
    sink.put(
        GaveUp(stamp(3), f"no primary: {heard}", Failure(kind=FailureReason.CLOSED, detail=heard), "deadline")
    )
    check_clean(tmp_path, BODY)
    assert text(tmp_path).count('"haclient.close.condition":"amqp:decode-error"') == 5


@pytest.mark.parametrize(
    "form",
    [
        PASSWORD,
        PASSWORD.lower(),
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.b64encode(f"\0app\0{PASSWORD}".encode()).decode(),
    ],
)
def test_a_password_is_looked_for_in_whatever_came_over_the_network(tmp_path: Path, form: str) -> None:
    sink = recorder(tmp_path, "broker-a", password=PASSWORD)
    here, there = Endpoint("broker-a", 5672), Endpoint(f"{form}.example", 5672)
    sink.put(Connected(stamp(1), here, 1, 1, 0.1, cluster=f"c{form}"))
    sink.put(Disconnected(stamp(2), here, form, 0, f"amqp:{form}".replace("=", "")))
    sink.put(Redirected(stamp(3), here, there, followed=False, detail=f"{there} is no member"))
    failure = Failure(kind=FailureReason.UNRESOLVED, detail=f"cannot resolve {form}")
    sink.put(
        AttemptFailed(stamp(4), AttemptRecord(number=1, endpoint=there, started=0, ended=1, failure=failure))
    )
    check_clean(tmp_path, form, PASSWORD)
    assert len(lines(tmp_path)) == 4


def test_a_password_that_needs_escaping_is_found_too(tmp_path: Path) -> None:
    secret = "p@ss/wörd\"\\'"
    sink = recorder(tmp_path, password=secret)
    here = Endpoint("broker-a", 5672)
    for number, form in enumerate((secret, quote(secret, safe=""), repr(secret)[1:-1]), 1):
        sink.put(Disconnected(stamp(number), here, f"[Errno 5] {form}", 0))
    flush()
    assert [line["data"].get("haclient.close.reason") for line in lines(tmp_path)] == [None] * 3


def test_a_password_that_is_a_host_of_the_url_does_not_hide_the_hosts(tmp_path: Path) -> None:
    sink = recorder(tmp_path, "broker-a", password="broker")
    sink.put(Connected(stamp(1), Endpoint("broker-b", 5672), 1, 1, 0.1, cluster="brokers"))
    flush()
    (line,) = lines(tmp_path)
    assert (line["data"]["server.address"], line["data"]["haclient.cluster"]) == ("broker-b", "brokers")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**70)])
def test_a_generation_that_no_reader_can_hold_is_left_out(tmp_path: Path, number: int) -> None:
    sink = recorder(tmp_path)
    sink.put(Connected(stamp(1), Endpoint("a", 1), number, 1, float("nan")))
    flush()
    line = json.loads(text(tmp_path))  # no contract allows it: no client measures such a time
    assert not {"haclient.generation", "haclient.outage.duration"} & set(line["data"])


def test_the_tokens_of_many_connections_are_secrets(tmp_path: Path) -> None:
    """However many others an application supplied meanwhile, as for its hundred connections."""
    redactor = Redactor(())
    sink = Recorder(TelemetrySettings(tmp_path), redactor, backoff_max=1.0)
    tokens = [f"Vq7Planted{number:04}Zx" for number in range(900)]
    for token in tokens:
        redactor.add(None, token, is_supplied=True)
    here = Endpoint("broker-a", 5672)
    for number, token in enumerate(tokens[:50] + tokens[-50:]):
        sink.put(Disconnected(stamp(number), here, f"cannot resolve {token}", 0))
    check_clean(tmp_path, "Vq7Planted")


@pytest.mark.slow
def test_passwords_that_are_supplied_for_ever_are_bounded() -> None:
    redactor = Redactor(())
    redactor.add("app", "of the URL")
    for number in range(3000):
        redactor.add("app", f"supplied-{number}", is_supplied=True)
    assert ("app", "of the URL") in redactor._known
    assert len(redactor._known) == 1001
