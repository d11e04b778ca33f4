"""Runs the command ``haclient`` in a separate process, as a shell would."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

HACLIENT = str(Path(sys.executable).with_name("haclient"))
PATIENCE = 30.0


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment variables without ``HACLIENT_*``, plus ``more``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HACLIENT_")}
    return {**clean, **more}


def run(*arguments: str, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it exits.

    :param text: the standard input.
    """
    return subprocess.run(
        [HACLIENT, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(**variables),
    )


class Running:
    """A command that runs concurrently with the test. It is killed on exit if it still runs."""

    def __init__(self, *arguments: str, stderr: int | None = None) -> None:
        self.process = subprocess.Popen(
            [HACLIENT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr is None else stderr,
            text=True,
            bufsize=1,
            env=environment(TERM="xterm", COLUMNS="120"),
        )
        self.seen: list[str] = []
        self.errors: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self.process.stdout is not None
        self._readers = [self._reader(self.process.stdout, self._lines.put)]
        if self.process.stderr is not None:
            self._readers.append(self._reader(self.process.stderr, self._note))

    def line(self) -> str:
        """Return the next line of the standard output.

        :raises AssertionError: if the output has ended.
        """
        line = self._lines.get(timeout=PATIENCE)
        assert line is not None, f"it ended: {''.join(self.errors)}"
        self.seen.append(line)
        return line

    def lines(self, count: int) -> list[str]:
        """Return the next ``count`` lines."""
        return [self.line() for _ in range(count)]

    def write(self, lines: Sequence[object]) -> None:
        """Write lines to the standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Close the standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Send a signal, and wait for the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def _note(self, line: str | None) -> None:
        if line is not None:
            self.errors.append(line)

    @staticmethod
    def _reader(stream: IO[str], take: Callable[[str | None], object]) -> threading.Thread:
        def read() -> None:
            for line in stream:
                take(line.rstrip("\n"))
            take(None)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
