"""Ctrl-C and SIGTERM at any time in a program's life: an exit code, and no traceback.

The signal is sent to the whole process group, as from a terminal.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from haclient.command_line.groups import Program

PATIENCE = 30.0
HACLIENT, BROKER_STUB = [sys.executable, "-m", "haclient"], [sys.executable, "-m", "broker_stub"]
SIGNALS = [signal.SIGINT, signal.SIGTERM]

# A program like ours: it prints its step, and waits there for signals.  It waits in short steps: if a signal
# comes just before a wait, Python runs its handler only after it (9 of 6,000 times on a busy machine).
PROGRAM = """
import sys, threading
from haclient.command_line import interrupts
interrupts.start_program()
def stay(where):
    print(where, flush=True)
    for _ in range(600):
        threading.Event().wait(0.1)
WHERE = sys.argv.pop(1)
if WHERE == "loading":
    try:
        stay("loading")
    except BaseException:  # as an import that takes it for a missing module
        pass
import click
from haclient.command_line.groups import Program
main = Program("main", modules={"work": "__main__"}, callback=lambda: None)
class InDestructor:
    def __del__(self):
        stay("destructor")
@click.command()
def work():
    if WHERE == "destructor":
        InDestructor()
    try:
        if WHERE in ("working", "undoing"):
            stay("working")
    finally:
        if WHERE == "undoing":
            stay("undoing")
if WHERE == "leaving":
    import atexit
    atexit.register(stay, "leaving")
main(["work"])
"""


class Group:
    """A process that leads its own group."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Return the exit code, and standard error."""
        try:
            _, errors = self.process.communicate(timeout=PATIENCE)
        finally:
            if self.process.poll() is None:
                self.send(signal.SIGKILL)
                self.process.communicate()
        return self.process.returncode, errors


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("where", ["working", "destructor", "leaving"])
def test_a_signal_is_an_exit_code_while_a_command_works_and_after_it(where: str, number: int) -> None:
    program = Group([sys.executable, "-c", PROGRAM, where])
    assert program.line() == where
    program.send(number)
    assert program.end() == (128 + number, "")


def test_ctrl_c_while_modules_load_is_an_exit_code() -> None:
    program = Group([sys.executable, "-c", PROGRAM, "loading"])
    assert program.line() == "loading"
    program.send(signal.SIGINT)
    assert program.end() == (130, "")


def test_a_second_signal_ends_what_the_first_one_undoes() -> None:
    program = Group([sys.executable, "-c", PROGRAM, "undoing"])
    for where in ("working", "undoing"):
        assert program.line() == where
        program.send(signal.SIGINT)
    assert program.end() == (130, "")


def test_a_process_that_ignores_ctrl_c_from_its_start_goes_on_until_it_is_terminated() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{PROGRAM}"
    program = Group([sys.executable, "-c", ignoring, "working"])
    assert program.line() == "working"
    program.send(signal.SIGINT)
    program.send(signal.SIGTERM)
    assert program.end() == (143, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "command",
    [
        [*HACLIENT, "members", "--timeout", "60"],
        [*HACLIENT, "receive", "URL", "orders", "--count", "1"],
        [*HACLIENT, "receive", "URL", "orders", "--timeout", "60"],
        [*HACLIENT, "move", "URL", "old", "new", "--count", "1"],
        [*HACLIENT, "send", "URL", "orders", "-m", "x"],
        [*HACLIENT, "watch", "URL", "--count", "9"],
        [*BROKER_STUB, "status", "--timeout", "60"],
        [*BROKER_STUB, "queue", "add", "orders", "--timeout", "60"],
    ],
    ids=lambda command: "-".join(command[2:]),
)
def test_a_command_that_waits_for_a_member_ends_with_the_code_of_the_signal(
    command: list[str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_STUB_PASSWORD", "secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        given = [url if word == "URL" else word for word in command]
        program = Group(given if "URL" in command else [*given, url])
        connection, _ = silent.accept()
        with connection:
            program.send(number)
            code, errors = program.end()
    assert code == 128 + number, errors
    assert "Traceback" not in errors


def test_a_command_that_raises_keyboard_interrupt_has_the_code_too() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    program = Program("program", modules={})
    program.list_commands = lambda _: ["work"]  # type: ignore[method-assign]
    program.get_command = lambda *_: click.Command("work", callback=interrupted)  # type: ignore[method-assign]
    done = CliRunner().invoke(program, ["work"])
    assert (done.exit_code, done.output) == (130, "")


def test_a_reader_that_closes_early_is_no_traceback() -> None:
    for module in ("haclient", "broker_stub"):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, "-m", module, "-h"],
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            os.close(writer)
        assert done.stderr == ""
