"""``haclient send`` and ``haclient receive``: pipes, signals, failovers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import proton
import pytest

from haclient.engine.amqp_values.walk import MOST_LEVELS
from haclient.outcome import Outcome, OutcomeState
from tests.broker_stub.replication.cluster import Cluster
from tests.cli.command import HACLIENT, PATIENCE, Running, environment, run
from tests.members import Member, Members
from tests.peers import Primary
from tests.peers import primary as scripted_primary

QUEUE = "orders"
QUICK = "backoff_base=0.02&backoff_max=0.2"


@pytest.fixture
def primary(members: Members) -> Member:
    return members.start("primary", role="primary")


def figures(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def test_lines_go_in_and_come_out_in_their_order(primary: Member) -> None:
    sent = run("send", primary.url, QUEUE, text="one\ntwo\n\nfour")
    assert (sent.returncode, sent.stdout) == (0, "")
    assert sent.stderr.startswith("accepted 4 in ")
    got = run("receive", primary.url, QUEUE, "--count", "4")
    assert (got.returncode, got.stdout) == (0, "one\ntwo\n\nfour\n")
    assert got.stderr.startswith("received 4 in ")
    assert primary.depth(QUEUE) == 0


def test_what_receive_writes_as_json_send_takes(primary: Member) -> None:
    message = {
        "id": {"$uuid": "5b1b0a0e-6d2c-4f2e-9c39-0d3a2e1f6a55"},
        "subject": "new",
        "durable": True,
        "properties": {"n": 1, "raw": {"$bytes": "AP8="}},
        "annotations": {"x-opt-a": [1, None]},
        "body": {"a": {"$map": [[1, "one"]]}, "b": "ü\n"},
    }
    sent = run("send", primary.url, "one", "--json", text=f"\n{json.dumps(message)}\n")
    assert sent.returncode == 0, sent.stderr
    assert {"sent": 1, "accepted": 1, "not_accepted": 0, "unsettled": 0, "failovers": 0}.items() <= figures(
        sent.stdout
    ).items()
    got = run("receive", primary.url, "one", "--json", "-n", "1")
    assert json.loads(got.stdout) == message
    assert {"received": 1, "again": 0}.items() <= figures(got.stderr).items()
    run("send", primary.url, "two", "--json", text=got.stdout)
    again = run("receive", primary.url, "two", "--json", "-n", "1", "-q")
    assert (json.loads(again.stdout), again.stderr) == (message, "")


def test_one_message_can_be_sent_many_times_at_a_pace(primary: Member) -> None:
    options = ("-m", "tick", "-n", "20", "--rate", "200", "-p", "kind=clock")
    sent = run("send", primary.url, QUEUE, *options)
    assert sent.returncode == 0
    assert sent.stderr.startswith("accepted 20 in ")
    (message, *others) = primary.messages(QUEUE)
    assert len(others) == 19
    assert (message.body, message.durable, message.properties["kind"]) == ("tick", True, "clock")


@pytest.mark.slow
def test_the_idle_timeout_that_ends_receive_is_no_part_of_its_figures(primary: Member) -> None:
    run("send", primary.url, QUEUE, text="one\ntwo")
    began = time.monotonic()
    got = run("receive", primary.url, QUEUE, "--timeout", "1", "--json")
    assert figures(got.stderr)["received"] == 2
    assert figures(got.stderr)["seconds"] <= time.monotonic() - began - 1


@pytest.mark.slow
def test_messages_are_durable_unless_the_command_line_or_a_message_says_otherwise(primary: Member) -> None:
    lines = '{"body": 1}\n{"body": 2, "durable": false}\n{"body": 3, "durable": true}\n'
    cases = {
        (): [True, False, True],
        ("--durable",): [True, False, True],
        ("--non-durable",): [False, False, True],
    }
    for number, (option, wanted) in enumerate(cases.items()):
        address = f"json-{number}"
        assert run("send", primary.url, address, "--json", *option, text=lines).returncode == 0
        assert [message.durable for message in primary.messages(address)] == wanted
        got = run("receive", primary.url, address, "--json", "-n", "3")
        assert [json.loads(line)["durable"] for line in got.stdout.splitlines()] == wanted
    assert run("send", primary.url, "lines", text="one\n").returncode == 0
    assert run("send", primary.url, "lines", "--non-durable", text="two\n").returncode == 0
    assert [message.durable for message in primary.messages("lines")] == [True, False]


async def test_only_what_the_primary_accepts_counts() -> None:
    refusal = Outcome(OutcomeState.REJECTED, "amqp:precondition-failed")
    async with scripted_primary(outcome=refusal) as peer:
        sent = await asyncio.to_thread(run, "send", f"amqp://{peer.address}", QUEUE, text="one\ntwo\n")
        shown = await asyncio.to_thread(run, "send", f"amqp://{peer.address}", QUEUE, "--json", "-m", "{}")
    assert sent.returncode == shown.returncode == 1
    assert sent.stderr.splitlines()[-1].startswith("accepted 0 in ")
    assert sent.stderr.splitlines()[-1].endswith("; 2 not accepted")
    counts = {"sent": 1, "accepted": 0, "not_accepted": 1, "unsettled": 0}
    assert counts.items() <= figures(shown.stdout).items()


async def test_a_message_that_is_too_large_is_not_accepted_and_the_others_are() -> None:
    lines = f"one\n{'x' * 1000}\ntwo\n"
    async with scripted_primary(max_message_size=1000) as peer:
        sent = await asyncio.to_thread(run, "send", f"amqp://{peer.address}", QUEUE, text=lines)
    assert sent.returncode == 1
    assert peer.bodies == ["one", "two"]
    assert "message 2: the message has " in sent.stderr
    assert sent.stderr.splitlines()[-1].endswith("; 1 not accepted")


@pytest.mark.slow
async def test_capabilities_are_asked_of_the_node() -> None:
    asked = ("--capability", "queue", "--capability", "shared")
    async with scripted_primary() as peer:
        url = f"amqp://{peer.address}"
        with Running("send", url, QUEUE, *asked) as sending:
            await peer.until(lambda: peer.attaches)
            assert capabilities(peer) == [(["queue", "shared"], [])]
            sending.end_input()
            assert await asyncio.to_thread(sending.wait) == 0
        with Running("receive", url, QUEUE, *asked) as receiving:
            await peer.until(lambda: len(peer.attaches) == 2)
            assert capabilities(peer) == [([], ["queue", "shared"])]
            assert await asyncio.to_thread(receiving.interrupt) == 0
        with Running("move", url, QUEUE, "other", "--capability", "queue"):
            await peer.until(lambda: len(peer.attaches) == 4)
            assert sorted(capabilities(peer)) == [([], ["queue"]), (["queue"], [])]
    assert run("send", url, QUEUE, "--capability").returncode == 2


def capabilities(peer: Primary) -> list[tuple[list[str], list[str]]]:
    """Return the capabilities requested on the target and the source of each link."""
    links = [link.endpoint for links in peer.engines.values() for link in links]
    return [(named(link.remote_target), named(link.remote_source)) for link in links]


def named(terminus: proton.Terminus) -> list[str]:
    data = terminus.capabilities
    data.rewind()
    if not data.next():
        return []
    found = data.get_object()
    return [str(each) for each in getattr(found, "elements", None) or (found,)]


def test_browsing_leaves_the_messages_there(primary: Member) -> None:
    run("send", primary.url, QUEUE, text="one\ntwo\n")
    looked = run("receive", primary.url, QUEUE, "--browse", "--timeout", "0.5")
    assert (looked.returncode, looked.stdout) == (0, "one\ntwo\n")
    assert primary.bodies(QUEUE) == ["one", "two"]


@pytest.mark.slow
def test_fewer_messages_than_asked_for_is_exit_code_1(primary: Member) -> None:
    run("send", primary.url, QUEUE, text="one\n")
    got = run("receive", primary.url, QUEUE, "-n", "2", "--timeout", "0.3")
    assert (got.returncode, got.stdout) == (1, "one\n")
    assert run("send", primary.url, QUEUE, "-n", "2", text="one\n").returncode == 1


@pytest.mark.slow
def test_wrong_input_is_reported_with_its_line_and_the_lines_before_are_sent(primary: Member) -> None:
    sent = run("send", primary.url, QUEUE, "--json", text='{"body": 1}\n{"body": 2, "subjekt": "x"}\n')
    assert sent.returncode == 3
    assert "line 2: field 'subjekt' is none of id, address" in sent.stderr
    assert figures(sent.stdout)["accepted"] == 1
    assert primary.bodies(QUEUE) == [1]
    assert "line 1: it is not JSON" in run("send", primary.url, QUEUE, "--json", text="{\n").stderr
    assert "--message: a message is an object" in run("send", primary.url, QUEUE, "--json", "-m", "[]").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_receive_with_what_it_wrote_accepted(primary: Member, number: int) -> None:
    with Running("receive", primary.url, QUEUE) as receiving:
        run("send", primary.url, QUEUE, text="one\n")
        assert receiving.line() == "one"
        assert receiving.interrupt(number) == 0
    assert receiving.errors[-1].startswith("received 1 in ")
    primary.wait_for(lambda _: primary.depth(QUEUE) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_send_with_what_it_read_settled(primary: Member, number: int) -> None:
    with Running("send", primary.url, QUEUE) as sending:
        sending.write(["one", "two"])
        primary.wait_for(lambda _: primary.depth(QUEUE) == 2)
        assert sending.interrupt(number) == 128 + number, "its input had not ended"
    assert sending.errors[-1].startswith("accepted 2 in ")


def test_a_signal_ends_the_search_too() -> None:
    with Running("receive", "amqp://127.0.0.1:1", QUEUE, "-v") as receiving:
        while not receiving.errors:
            receiving.process.poll()
        assert receiving.interrupt() == 0


@pytest.mark.slow
def test_a_reader_that_stands_still_holds_up_neither_heartbeats_nor_a_signal(primary: Member) -> None:
    run("send", primary.url, QUEUE, text="".join(f"{'x' * 100_000}\n" for _ in range(20)))
    url = f"{primary.url}?heartbeat=0.2"
    command = [HACLIENT, "receive", url, QUEUE, "-v"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as receiving:
        assert receiving.stderr is not None
        while " connected " not in receiving.stderr.readline():
            pass
        time.sleep(1)  # five heartbeat intervals; the peer gives up after two
        receiving.send_signal(signal.SIGINT)
        assert receiving.wait(PATIENCE) == 0
        assert " disconnected " not in receiving.stderr.read()
    primary.wait_for(lambda _: primary.depth(QUEUE) == 20)


def test_a_reader_that_closes_ends_receive_and_the_rest_stays(primary: Member) -> None:
    run("send", primary.url, QUEUE, text="".join(f"{n}\n" for n in range(1000)))
    shell = f"{HACLIENT} receive {primary.url} {QUEUE} --rate 500; echo $? >&2"
    done = subprocess.run(
        ["sh", "-c", f"({shell}) | head -1"],
        capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment(),
    )  # fmt: skip
    assert done.stdout == "0\n"
    assert done.stderr.splitlines()[-1] == "0"
    assert primary.depth(QUEUE) > 0


@pytest.mark.slow
def test_streams_that_cannot_be_used_are_reported(primary: Member) -> None:
    command = (
        f"{HACLIENT} send {primary.url} {QUEUE} <&-; echo $?; {HACLIENT} send {primary.url} {QUEUE} -m one; "
    )
    command += f"{HACLIENT} receive {primary.url} {QUEUE} -n 1 2>&1 >/dev/full; echo $?"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment()
    )
    assert "Error: standard input is closed" in done.stderr
    assert "Error: standard output: No space left on device" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.isdecimal()] == ["3", "3"]
    assert primary.bodies(QUEUE) == ["one"]


async def test_nothing_is_lost_between_send_and_receive_when_the_primary_is_killed(tmp_path: Path) -> None:
    """The pair replicates. A message that is delivered again after the failover is counted once."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.pair()
        url = f"{cluster.url}?{QUICK}"
        wanted = {str(number) for number in range(600)}
        with Running("receive", url, QUEUE) as receiving, Running("send", url, QUEUE) as sending:
            await asyncio.to_thread(sending.write, range(300))
            await asyncio.to_thread(receiving.lines, 200)
            await first.kill()
            await asyncio.to_thread(sending.write, range(300, 600))
            sending.end_input()
            await second.promote()
            assert await asyncio.to_thread(sending.wait) == 0
            while set(receiving.seen) != wanted:
                await asyncio.to_thread(receiving.line)
            assert await asyncio.to_thread(receiving.interrupt) == 0
        assert sending.errors[-1].startswith("accepted 600 in ")
        assert sending.errors[-1].endswith(", 1 failover")
        assert any("  reconnected " in line for line in receiving.errors)


async def test_a_connection_that_is_down_is_no_silence() -> None:
    """The primary answers the second Begin later than ``--timeout`` allows for silence."""
    async with scripted_primary() as peer:
        peer.put(QUEUE, "one")
        with Running(
            "receive", f"amqp://{peer.address}?{QUICK}", QUEUE, "--timeout", "1", "-n", "2"
        ) as receiving:
            assert await asyncio.to_thread(receiving.line) == "one"
            await peer.until(lambda: peer.outcomes)
            peer.begin_after = 2.0
            peer.drop()
            peer.put(QUEUE, "two")
            assert await asyncio.to_thread(receiving.wait) == 0, receiving.errors
            assert receiving.line() == "two"


async def test_a_primary_that_does_not_come_back_is_not_the_end_of_the_messages() -> None:
    with contextlib.ExitStack() as stack:
        async with scripted_primary() as peer:
            peer.put(QUEUE, "one")
            url = f"amqp://{peer.address}?{QUICK}"
            options = ("--timeout", "20", "--reconnect-timeout", "0.3")
            receiving = stack.enter_context(Running("receive", url, QUEUE, *options))
            assert await asyncio.to_thread(receiving.line) == "one"
        assert await asyncio.to_thread(receiving.wait) == 4
        assert receiving.errors[-1] == "Error: no connection for 0.3 s"


def test_a_terminal_gets_a_progress_bar(primary: Member) -> None:
    mine, its = pty.openpty()
    with Running("send", primary.url, QUEUE, "-n", "1000", stderr=its) as sending:
        os.close(its)
        sending.write(["one"] * 500)
        shown = read_until(mine, "500/1000")
        assert "connected" in shown
        sending.write(["one"] * 500)
        assert "accepted 1,000 in " in read_until(mine, "accepted 1,000")
        assert sending.wait() == 0
    os.close(mine)


def read_until(descriptor: int, text: str) -> str:
    seen = ""
    while text not in seen:
        assert select.select([descriptor], [], [], PATIENCE)[0], seen
        seen += os.read(descriptor, 65536).decode()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("levels", [MOST_LEVELS, 30_000])
@pytest.mark.parametrize("options", [(), ("--json",), ("--browse",)])
async def test_a_message_that_cannot_be_read_ends_no_command(levels: int, options: tuple[str, ...]) -> None:
    """A value nested as deep as the client may send is written. A deeper one is rejected with the reason."""
    deep = b"\x00\x53\x77" + nested(levels)
    async with scripted_primary() as peer:
        peer.put(QUEUE, "one")
        peer.put_encoded(QUEUE, deep)
        peer.put(QUEUE, "two")
        readable = levels <= MOST_LEVELS
        count = ("--count", "3" if readable else "2")
        got = await asyncio.to_thread(run, "receive", f"amqp://{peer.address}", QUEUE, *count, *options)
        assert got.returncode == 0, got.stderr
        lines = got.stdout.splitlines()
        assert "Traceback" not in got.stderr
        assert ("more than 300 levels" in got.stderr) == (not readable)
        assert len(lines) == 2 + readable
        assert "one" in lines[0]
        assert "two" in lines[-1]
        states = [outcome.state for outcome in peer.outcomes]
        taken = OutcomeState.RELEASED if "--browse" in options else OutcomeState.ACCEPTED
        left = OutcomeState.RELEASED if "--browse" in options else OutcomeState.REJECTED
        assert Counter(states) == Counter([taken, taken if readable else left, taken])


def nested(levels: int) -> bytes:
    """Return encoded maps, nested ``levels`` deep."""
    value = b"\x45"
    for _ in range(levels - 1):
        value = b"\xd1" + (len(value) + 7).to_bytes(4) + (2).to_bytes(4) + b"\xa1\x01k" + value
    return value


async def test_a_field_that_is_no_text_ends_no_command() -> None:
    async with scripted_primary() as peer:
        subject = b"\x00\x53\x73\xc0\x08\x04\x40\x40\x40\xa1\x02\xff\xfe"
        peer.put_encoded(QUEUE, subject + b"\x00\x53\x77\xa1\x03bad")
        peer.put(QUEUE, "good")
        got = await asyncio.to_thread(run, "receive", f"amqp://{peer.address}", QUEUE, "-n", "1", "--json")
        assert got.returncode == 0, got.stderr
        assert json.loads(got.stdout)["body"] == "good"
        assert figures(got.stderr)["unreadable"] == 1
