"""A pair and a single broker, as an application's tests use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import psutil
import pytest

import haclient
from haclient import Message, aio
from haclient.errors import AuthenticationFailed, SendTimeout
from haclient.testing import Broker, HAPair

# Seconds for a busy machine; no test waits for them to pass.
PATIENCE = 60.0


@pytest.fixture
def pair(haclient_module_pair: HAPair) -> HAPair:
    """The module's pair, reset to its initial state."""
    haclient_module_pair.restore()
    return haclient_module_pair


def kill(pair: HAPair) -> None:
    pair.kill_primary()


def hang(pair: HAPair) -> None:
    pair.pause()
    pair.promote()


def isolate(pair: HAPair) -> None:
    pair.partition()
    pair.promote()


def isolate_with_resets(pair: HAPair) -> None:
    pair.partition(how="reset")
    pair.promote()


def switch_over(pair: HAPair) -> None:
    pair.promote()


FAILURES = [kill, hang, isolate, isolate_with_resets, switch_over]


def roles(pair: HAPair) -> tuple[str, str]:
    """Return the primary and the backup."""
    primary = pair.primary
    assert primary is not None
    (backup,) = set(pair.members) - {primary}
    return primary, backup


def bodies(url: str, queue: str, count: int) -> list[object]:
    """Receive and accept ``count`` messages of a queue; return their bodies."""
    found = []
    with haclient.connect(url) as connection, connection.create_receiver(queue) as receiver:
        for _ in range(count):
            delivery = receiver.receive(timeout=PATIENCE)
            found.append(delivery.message.body)
            delivery.accept()
    return found


@pytest.mark.parametrize("fail", FAILURES)
def test_what_was_sent_before_during_and_after_a_failure_is_there(
    fail: Callable[[HAPair], None], pair: HAPair, haclient_fast_failover: None
) -> None:
    old, generation = pair.primary, pair.generation
    with haclient.connect(pair.url) as connection, connection.create_sender("q") as sender:
        sender.send(Message(body="before"), timeout=PATIENCE)
        fail(pair)
        sender.send(Message(body="during"), timeout=PATIENCE)
        pair.resume()
        pair.heal()
        pair.wait_ready(PATIENCE)
        sender.send(Message(body="after"), timeout=PATIENCE)
    assert pair.primary not in {old, None}
    assert pair.generation > generation
    assert bodies(pair.url, "q", 3) == ["before", "during", "after"]


def test_a_client_that_has_never_heard_of_the_backup_is_redirected_to_it(pair: HAPair) -> None:
    primary, backup = roles(pair)
    with haclient.connect(f"amqp://{pair.address_of(backup)}") as connection:
        assert str(connection.endpoint) == f"amqp://{pair.address_of(primary)}"


async def test_calls_that_take_long_leave_an_event_loop_alone_on_another_thread(pair: HAPair) -> None:
    async with aio.connect(pair.url) as connection, await connection.create_sender("q") as sender:
        pair.kill_primary()
        outcome, _ = await asyncio.gather(
            sender.send(Message(body="one"), timeout=PATIENCE), asyncio.to_thread(pair.wait_ready)
        )
    assert outcome.state is haclient.OutcomeState.ACCEPTED


def test_a_member_killed_for_good_is_not_waited_for_and_stays_dead_until_it_is_started(pair: HAPair) -> None:
    dead = pair.kill_primary(restart=False)
    pair.wait_ready(PATIENCE)
    assert pair.primary not in {dead, None}
    with pytest.raises(RuntimeError, match=f"no backup to promote: .*{dead} dead"):
        pair.promote()
    pair.restart()
    pair.wait_ready(PATIENCE)
    assert pair.promote() == dead


def test_both_members_may_be_killed_one_after_the_other(pair: HAPair) -> None:
    first = pair.kill_primary()
    pair.wait_ready(PATIENCE)
    second = pair.kill_primary()
    pair.wait_ready(PATIENCE)
    assert {first, second} == set(pair.members)
    assert pair.primary == first


def test_a_partition_that_nobody_decides_about_ends_where_it_began(
    pair: HAPair, haclient_fast_failover: None
) -> None:
    with haclient.connect(pair.url) as connection, connection.create_sender("q") as sender:
        isolated = pair.partition()
        assert pair.primary is None
        with pytest.raises(SendTimeout):
            sender.send(Message(body="held"), timeout=0.5)
        pair.heal()
        pair.wait_ready(PATIENCE)
        sender.send(Message(body="after"), timeout=PATIENCE)
    assert isolated in pair.members


def test_a_backup_can_be_stopped_and_comes_back(pair: HAPair) -> None:
    _, backup = roles(pair)
    pair.pause(backup)
    pair.wait_ready(PATIENCE)
    with haclient.connect(pair.url) as connection, connection.create_sender("q") as sender:
        sender.send(Message(body="one"), timeout=PATIENCE)
    pair.resume()
    pair.wait_ready(PATIENCE)
    assert pair.promote(backup) == backup


def test_a_restored_pair_has_no_queues(pair: HAPair) -> None:
    with haclient.connect(pair.url) as connection, connection.create_sender("q") as sender:
        sender.send(Message(body="old"), timeout=PATIENCE)
    pair.restore()
    with haclient.connect(pair.url) as connection:
        connection.create_sender("q").send(Message(body="new"), timeout=PATIENCE)
    assert bodies(pair.url, "q", 1) == ["new"]


def test_a_timeout_names_the_state_of_every_member(pair: HAPair) -> None:
    primary, backup = roles(pair)
    pair.pause()
    with pytest.raises(TimeoutError, match=r"not ready after 0.3 s: member-1 \w+.*, member-2 \w+") as caught:
        pair.wait_ready(0.3)
    assert f"{primary} primary and stopped" in str(caught.value)
    assert f"{backup} ready" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda pair: pair.pause("member-7"), "no member 'member-7'; there are member-1, member-2"),
        (lambda pair: pair.partition(how="loud"), "how='loud': it is one of silent, reset"),
    ],
)
def test_a_call_that_makes_no_sense_says_what_would(
    wrong: Callable[[HAPair], object], words: str, pair: HAPair
) -> None:
    with pytest.raises(ValueError, match=words):
        wrong(pair)


def test_there_is_nobody_to_kill_while_there_is_no_primary(pair: HAPair) -> None:
    paused = pair.pause()
    with pytest.raises(RuntimeError, match=f"there is no primary now: .*{paused} primary and stopped"):
        pair.kill_primary()


@pytest.mark.slow
def test_another_pair_has_more_members_and_users_and_is_gone_after_it(
    haclient_pair_factory: Callable[..., AbstractContextManager[HAPair]],
) -> None:
    before = set(psutil.Process().children())
    with haclient_pair_factory(members=3, users={"alice": "secret"}) as pair:
        assert len(pair.members) == len(set(psutil.Process().children()) - before) == 3
        alice = haclient.Credentials(user="alice", password="secret")
        with haclient.connect(pair.url, credentials=alice) as connection:
            connection.create_sender("q").send(Message(body="one"), timeout=PATIENCE)
        with pytest.raises(AuthenticationFailed):
            haclient.connect(pair.url)
        pair.pause()
        pair.promote()
        pair.wait_ready(PATIENCE)
    assert set(psutil.Process().children()) == before


def test_a_pair_whose_context_has_ended_says_so(
    haclient_pair_factory: Callable[..., AbstractContextManager[HAPair]],
) -> None:
    with haclient_pair_factory(members=1) as pair:
        pass
    with pytest.raises(RuntimeError, match="of this context or fixture has ended"):
        pair.wait_ready()


@pytest.mark.parametrize("members", [0, -1])
def test_a_cluster_has_a_member(
    members: int, haclient_pair_factory: Callable[..., AbstractContextManager[HAPair]]
) -> None:
    with pytest.raises(ValueError, match=f"members={members}: "):
        haclient_pair_factory(members=members).__enter__()


def test_a_broker_keeps_its_messages_when_it_is_killed(haclient_broker: Broker) -> None:
    with haclient.connect(haclient_broker.url) as connection, connection.create_sender("q") as sender:
        sender.send(Message(body="one"), timeout=PATIENCE)
        haclient_broker.kill()
        later = sender.submit(Message(body="two"))
        haclient_broker.restart()
        later.result(PATIENCE)
    assert bodies(haclient_broker.url, "q", 2) == ["one", "two"]


@pytest.mark.slow
def test_a_stopped_broker_goes_on_where_it_was(haclient_broker: Broker) -> None:
    with haclient.connect(haclient_broker.url) as connection, connection.create_sender("q") as sender:
        haclient_broker.pause()
        held = sender.submit(Message(body="one"))
        haclient_broker.resume()
        held.result(PATIENCE)
