"""A broker on a thread of the test's process: its leftovers, and its independence of the test."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

import haclient
from haclient import Message, aio
from haclient.errors import ReceiveTimeout
from haclient.testing import InProcessBroker, in_process_broker

pytest_plugins = ["pytester"]

PATIENCE = 60.0
STRICT = ("-W", "error", "--strict-markers", "--strict-config")
ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def send(url: str, body: object, queue: str = "q") -> None:
    with haclient.connect(url) as connection, connection.create_sender(queue) as sender:
        sender.send(Message(body=body), timeout=PATIENCE)


def receive(url: str, timeout: float = PATIENCE, queue: str = "q") -> object:
    with haclient.connect(url) as connection, connection.create_receiver(queue) as receiver:
        delivery = receiver.receive(timeout=timeout)
        delivery.accept()
        return delivery.message.body


def test_messages_go_through_it(haclient_in_process_broker: InProcessBroker) -> None:
    broker = haclient_in_process_broker
    assert broker.url == f"amqp://{broker.address}"
    assert not broker.options
    send(broker.url, "one")
    assert receive(broker.url) == "one"


async def test_an_asynchronous_test_uses_it_on_a_loop_of_its_own(
    haclient_in_process_broker: InProcessBroker,
) -> None:
    async with aio.connect(haclient_in_process_broker.url) as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body="one"), timeout=PATIENCE)
        receiver = await connection.create_receiver("q")
        assert (await receiver.receive(timeout=PATIENCE)).message.body == "one"


def test_two_at_once_are_two() -> None:
    with in_process_broker() as one, in_process_broker() as two:
        assert one.address != two.address
        send(one.url, "one")
        send(two.url, "two")
        assert (receive(two.url), receive(one.url)) == ("two", "one")


def test_a_hundred_in_a_row_leave_neither_threads_nor_descriptors() -> None:
    with in_process_broker() as broker:
        send(broker.url, 0)
    threads, before = set(threading.enumerate()), descriptors()
    for number in range(100):
        with in_process_broker() as broker:
            if number % 10 == 0:
                send(broker.url, number)
    assert set(threading.enumerate()) == threads
    assert descriptors() <= before


def test_as_new_is_without_queues_and_exchanges(haclient_in_process_broker: InProcessBroker) -> None:
    broker = haclient_in_process_broker
    send(broker.url, "old")
    broker.restore()
    with pytest.raises(ReceiveTimeout):
        receive(broker.url, timeout=0.1)


def test_clients_whose_connection_is_closed_come_back(
    haclient_in_process_broker: InProcessBroker, haclient_fast_failover: None
) -> None:
    broker = haclient_in_process_broker
    with haclient.connect(broker.url) as connection, connection.create_sender("q") as sender:
        sender.send(Message(body=1), timeout=PATIENCE)
        with connection.events() as events:
            broker.close_connections()
            lost = next(event for event in events if isinstance(event, haclient.events.Disconnected))
            assert lost.condition is not None
            sender.send(Message(body=2), timeout=PATIENCE)
    assert [receive(broker.url), receive(broker.url)] == [1, 2]


def test_what_its_thread_raises_reaches_the_test() -> None:
    def fail() -> None:
        raise ZeroDivisionError("in the broker")

    def hurt() -> None:
        asyncio.get_running_loop().call_soon(fail)

    def use() -> None:
        with in_process_broker() as broker:
            broker._loop.do(hurt)
            send(broker.url, "it goes on")

    with pytest.raises(ExceptionGroup, match="the broker in this process raised") as caught:
        use()
    assert caught.group_contains(ZeroDivisionError, match="in the broker")


def test_a_connection_that_a_test_leaks_is_closed() -> None:
    with in_process_broker() as broker:
        host, _, port = broker.address.partition(":")
        silent = socket.create_connection((host, int(port)), PATIENCE)
        greeted = socket.create_connection((host, int(port)), PATIENCE)
        greeted.sendall(b"AMQP\x00\x01\x00\x00")
        assert greeted.recv(8) == b"AMQP\x00\x01\x00\x00"
    for leaked in (silent, greeted):
        with leaked:
            try:
                while leaked.recv(4096):
                    pass
            except ConnectionResetError:
                pass


async def test_a_client_that_an_asynchronous_test_leaks_does_not_hold_the_end_up() -> None:
    """The client's event loop is stopped, as during a fixture's end, and answers no Close."""
    with in_process_broker() as broker:
        connection = aio.connect(broker.url, deadline=1)
        leaked = await connection
    await leaked.close()


def test_signals_are_the_tests_own() -> None:
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    before = {number: signal.getsignal(number) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    with in_process_broker():
        assert {number: signal.getsignal(number) for number in numbers} == before
        now = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(now)
        assert now == wakeup


def test_a_fork_talks_to_its_parents_broker_and_cannot_command_it() -> None:
    with in_process_broker() as broker:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                broker.restore()
            except RuntimeError as error:
                send(broker.url, str(error))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert receive(broker.url) == "this fixture belongs to the process that this one was forked from"


def test_it_is_gone_after_its_context() -> None:
    with in_process_broker() as broker:
        pass
    with pytest.raises(RuntimeError, match="of this context or fixture has ended"):
        broker.restore()


@pytest.mark.slow
def test_scopes_and_workers_are_what_they_are_for_the_other_brokers(pytester: pytest.Pytester) -> None:
    tests = """
        import os
        import haclient
        import pytest

        urls = {"function": set(), "module": set(), "session": set()}

        @pytest.mark.parametrize("time", [1, 2])
        def test_it(
            time,
            haclient_in_process_broker,
            haclient_module_in_process_broker,
            haclient_session_in_process_broker,
        ):
            shared = haclient_session_in_process_broker
            shared.restore()
            with haclient.connect(shared.url) as connection:
                connection.create_sender("q").send(haclient.Message(body=os.getpid()), timeout=60)
                assert connection.create_receiver("q").receive(timeout=60).body == os.getpid()
            urls["function"].add(haclient_in_process_broker.url)
            urls["module"].add(haclient_module_in_process_broker.url)
            urls["session"].add(haclient_session_in_process_broker.url)
            assert [len(each) for each in urls.values()] == [time, 1, 1]
        """
    pytester.makepyfile(test_one=tests, test_two=tests)
    result = pytester.runpytest_subprocess(*STRICT, *ASYNCIO, "-n", "2", "--dist", "loadfile")
    result.assert_outcomes(passed=4)
