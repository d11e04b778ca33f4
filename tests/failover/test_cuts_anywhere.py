"""Cuts in every layer: in TLS and SASL handshakes, and in the middle of large messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import pytest

from haclient import Message, aio
from haclient.discovery.evidence import FailureReason
from haclient.events import AttemptFailed, Event
from tests.certificates import Authority
from tests.failover.forwarder import Cuts, Forwarder
from tests.members import Member, Members

QUEUE = "numbers"
CUTS = 20
# A cut on the way back waits for an answer; with a small window it is not the last one.
OPTIONS = "backoff_base=0.002&backoff_max=0.02&window=50"
USERS = {"app": "word"}
# These tests make more handshakes a second than a busy machine admits.
GREETS_ALL = {"log_level": "warning", "accept_rate": "unlimited"}


def numbered(number: int) -> Message:
    return Message(id=number, body="x" * 150)


def of_any_size(rng: random.Random, number: int) -> Message:
    """Draw sizes from a part of a frame to six frames."""
    return Message(id=number, body=f"{number:06}" * rng.choice([1, 1000, 12_000, 70_000]))


async def send_through_cuts(
    member: Member, url: str, messages: list[Message], cuts: Cuts, **arguments: object
) -> list[Event]:
    """Send all messages through cuts; each must arrive once, whole and in its place."""
    events = list[Event]()
    with Forwarder(member.address, cuts=cuts) as forwarder:
        url = f"{url.format(port=forwarder.port)}&{OPTIONS}"
        async with aio.connect(url, on_event=events.append, **arguments) as connection:
            sender = await connection.create_sender(QUEUE)
            futures = [await sender.submit(message) for message in messages]
            await sender.flush(timeout=60)
            assert all(future.result().accepted for future in futures)
    arrived = await asyncio.to_thread(member.messages, QUEUE)
    assert [message.id for message in arrived] == [message.id for message in messages]
    assert [message.body for message in arrived] == [message.body for message in messages]
    assert len(cuts.established) >= CUTS
    return events


@pytest.fixture
def cuts() -> Callable[..., Cuts]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    return partial(Cuts, random.Random(seed), CUTS)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_handshake_that_is_cut_is_never_reported_as_a_wrong_password(
    mechanism: str, members: Members, cuts: Callable[..., Cuts]
) -> None:
    member = members.start("primary", role="primary", users=USERS, anonymous=False, **GREETS_ALL)
    url = f"amqp://app:word@127.0.0.1:{{port}}?sasl_mechanisms={mechanism}"
    messages = [numbered(number) for number in range(3_000)]
    events = await send_through_cuts(member, url, messages, cuts(span=20_000, in_handshake=0.7))
    kinds = {event.record.failure.kind for event in events if isinstance(event, AttemptFailed)}
    assert kinds <= {FailureReason.ENDED}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "EXTERNAL"])
async def test_a_tls_handshake_that_is_cut_is_never_reported_as_a_wrong_certificate(
    mechanism: str, members: Members, authority: Authority, cuts: Callable[..., Cuts]
) -> None:
    options = {"certificate": authority.issue("127.0.0.1", "localhost"), "users": USERS, "clients": authority}
    member = members.start("primary", role="primary", **GREETS_ALL, **options)
    mine = authority.issue("app@example.test")
    url = f"amqps://app:word@localhost:{{port}}?sasl_mechanisms={mechanism}&tls_ca={authority.file}"
    url += f"&tls_cert={mine.chain}&tls_key={mine.key}"
    messages = [numbered(number) for number in range(3_000)]
    events = await send_through_cuts(member, url, messages, cuts(span=20_000, in_handshake=0.5))
    kinds = {event.record.failure.kind for event in events if isinstance(event, AttemptFailed)}
    # localhost may also mean ::1, which has no listener.
    assert kinds <= {FailureReason.ENDED, FailureReason.TLS_FAILED, FailureReason.REFUSED}


@pytest.mark.slow
@pytest.mark.parametrize("frame", [512, 65536])
async def test_messages_of_many_frames_that_are_cut_arrive_whole_and_once(
    frame: int, members: Members, cuts: Callable[..., Cuts]
) -> None:
    member = members.start("primary", role="primary", log_level="warning")
    drawn = cuts(span=1_500_000, upstream=1.0)
    messages = [of_any_size(drawn.rng, number) for number in range(250)]
    await send_through_cuts(member, f"amqp://127.0.0.1:{{port}}?max_frame_size={frame}", messages, drawn)
