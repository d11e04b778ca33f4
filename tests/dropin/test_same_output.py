"""Programs written for proton print the same after a change of their import line."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cluster_url.endpoint import Endpoint
from tests.dropin.programs_of_proton import Programs, run
from tests.members import Member


def free_port() -> str:
    (address,) = free_addresses((Endpoint("127.0.0.1", 0),))
    return address.authority


def run_both(programs: Programs, name: str, *arguments: str) -> tuple[str, str]:
    """Run a program with proton and with our package; return both outputs."""
    return run(programs.theirs(name), *arguments), run(programs.ours(name), *arguments)


def test_a_sender_and_a_receiver(programs: Programs, broker: Member) -> None:
    sent = run_both(programs, "simple_send", broker.address, "orders", "250")
    assert sent[0] == sent[1]
    assert sent[1].endswith("all messages confirmed\n")
    received = run_both(programs, "simple_recv", f"{broker.address}/orders", "250")
    assert received[0] == received[1]
    assert received[1].splitlines() == [str({"sequence": n}) for n in range(1, 251)]


def test_hello_with_every_event_of_a_handler(programs: Programs, broker: Member) -> None:
    theirs, ours = run_both(programs, "hello", broker.address, "greetings")
    assert ours == theirs
    assert ours.endswith("on_transport_closed\non_reactor_final\n")


@pytest.mark.slow
@pytest.mark.parametrize("server", ["theirs", "ours"])
@pytest.mark.parametrize("client", ["client", "sync_client"])
async def test_requests_and_responses(programs: Programs, broker: Member, server: str, client: str) -> None:
    make = programs.start_theirs if server == "theirs" else programs.start
    requests = ("one", "two", "three")
    async with make("server", broker.address, "service") as answering:
        await answering.line("listening")
        theirs, ours = await asyncio.to_thread(
            run_both, programs, client, broker.address, "service", *requests
        )
        last = await asyncio.to_thread(run, programs.ours(client), broker.address, "service", "stop")
        assert (await answering.end()).endswith("stopped\n")
    assert ours == theirs == "".join(f"{each} => {each.upper()}\n" for each in requests)
    assert last == "stop => STOP\n"


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["theirs", "ours"])
@pytest.mark.parametrize("receiver", ["theirs", "ours"])
async def test_a_sender_to_a_listening_receiver(programs: Programs, sender: str, receiver: str) -> None:
    address = free_port()
    make = programs.start_theirs if receiver == "theirs" else programs.start
    send = programs.theirs("simple_send") if sender == "theirs" else programs.ours("simple_send")
    async with make("direct_recv", address, "20") as listening:
        await listening.line("listening")
        sent = await asyncio.to_thread(run, send, address, "examples", "20")
        received = await listening.end()
    assert sent == "all messages confirmed\n"
    lines = [str({"sequence": n}) for n in range(1, 21)]
    assert received.splitlines() == [
        "listening",
        "link opening to examples",
        *lines,
        "connection closed",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["theirs", "ours"])
@pytest.mark.parametrize("receiver", ["theirs", "ours"])
async def test_a_receiver_from_a_listening_sender(programs: Programs, sender: str, receiver: str) -> None:
    address = free_port()
    make = programs.start_theirs if sender == "theirs" else programs.start
    receive = programs.theirs("simple_recv") if receiver == "theirs" else programs.ours("simple_recv")
    async with make("direct_send", address, "20") as listening:
        await listening.line("listening")
        received = await asyncio.to_thread(run, receive, f"{address}/examples", "20")
        sent = await listening.end()
    assert received.splitlines() == [str({"sequence": n}) for n in range(1, 21)]
    assert sent.splitlines() == ["listening", "all messages confirmed", "link closed"]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["theirs", "ours"])
@pytest.mark.parametrize("client", ["theirs", "ours"])
@pytest.mark.parametrize("program", ["client", "sync_client"])
async def test_requests_to_a_listening_server(
    programs: Programs, program: str, server: str, client: str
) -> None:
    address = free_port()
    make = programs.start_theirs if server == "theirs" else programs.start
    asking = programs.theirs(program) if client == "theirs" else programs.ours(program)
    async with make("server_direct", address) as answering:
        await answering.line("listening")
        answers = await asyncio.to_thread(run, asking, address, "service", "one", "two")
        served = await answering.end()
    assert answers == "one => ONE\ntwo => TWO\n"
    assert served.splitlines() == [
        "listening",
        "answered one to reply-0",
        "answered two to reply-0",
        "a client leaves",
    ]


def test_a_queue_browser(programs: Programs, broker: Member) -> None:
    run(programs.ours("simple_send"), broker.address, "orders", "5")
    theirs, ours = run_both(programs, "queue_browser", broker.address, "orders", "5")
    assert ours.count("sequence") == 5
    # A browser of proton's sees our sender's id; our browser removes it.
    assert _without_ids(theirs) == ours
    assert broker.depth("orders") == 5


def test_a_selector(programs: Programs, broker: Member) -> None:
    printed = []
    for program in (programs.theirs("selected_recv"), programs.ours("selected_recv")):
        with closing(BlockingConnection(broker.address)) as connection:
            sender = connection.create_sender("colours")
            for properties in ({"colour": "red"}, {"colour": "green"}, {"colour": "green", "last": True}):
                sender.send(Message(body=str(properties), properties=properties))
        printed.append(run(program, broker.address, "colours"))
    theirs, ours = printed
    assert ours == theirs
    assert "opened, filter {symbol('selector'): Described(" in ours
    assert ours.endswith("{'colour': 'green'}\n{'colour': 'green', 'last': True}\n")


@pytest.mark.parametrize("name", ["tx_send", "tx_recv"])
def test_a_transaction_is_refused_in_the_same_words(programs: Programs, broker: Member, name: str) -> None:
    theirs, ours = run_both(programs, name, broker.address, "orders")
    assert ours == theirs == "refused: amqp:not-implemented transactions are not supported\n"


@pytest.mark.slow
@pytest.mark.parametrize("server", ["theirs", "ours"])
@pytest.mark.parametrize("client", ["theirs", "ours"])
async def test_transactions_with_a_listening_coordinator(
    programs: Programs, server: str, client: str
) -> None:
    address = free_port()
    make = programs.start_theirs if server == "theirs" else programs.start
    asking = programs.theirs("tx_both") if client == "theirs" else programs.ours("tx_both")
    async with make("tx_direct", address) as coordinator:
        await coordinator.line("listening")
        told = await asyncio.to_thread(run, asking, address, "orders")
        kept = await coordinator.end()
    assert told.splitlines() == ["declared b'tx-1'", "rolled back", "declared b'tx-2'", "committed"]
    assert kept.splitlines() == [
        "listening",
        "b'tx-1' dropped ['never mind']",
        "b'tx-2' kept ['for good']",
    ]


def test_a_peer_of_oneself(programs: Programs) -> None:
    theirs, ours = run_both(programs, "hello_direct", free_port())
    assert ours == theirs
    assert ours.splitlines()[0] == "Hello World!"


@pytest.mark.parametrize("name", ["recurring_timer", "application_events"])
def test_programs_without_a_connection(programs: Programs, name: str) -> None:
    theirs, ours = run_both(programs, name)
    assert ours == theirs
    assert ours.endswith("over\n")


def test_blocking_calls(programs: Programs, broker: Member) -> None:
    theirs, ours = run_both(programs, "blocking_hello", broker.address, "greetings", "5")
    assert ours == theirs
    assert ours.endswith("LinkDetached amqp:not-found\n")


def test_what_connect_json_says(
    programs: Programs, broker: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = broker.address.partition(":")
    file = tmp_path / "my-connect.json"
    file.write_text(
        f"""{{ // where the broker is
        "scheme": "amqp", /* no TLS
        here */ "host": "{host}", "port": {port}
        }}"""
    )
    monkeypatch.setenv("MESSAGING_CONNECT_FILE", str(file))
    theirs, ours = run_both(programs, "configured")
    assert ours == theirs == "connected\nclosed\n"


def _without_ids(printed: str) -> str:
    import re

    return re.sub(r" properties=\{'_AMQ_DUPL_ID': '[^']*'\},", "", printed)
