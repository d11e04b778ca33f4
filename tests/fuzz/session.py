"""The process in which libFuzzer runs.

Its arguments: a target; ``planted`` or not; the seconds of processor time without a new input after
which it ends (0 for never); the folders for new inputs and for broken rules; libFuzzer's own arguments.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import sys
import tempfile
import time
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import atheris

from tests.fuzz import script
from tests.fuzz.target import Defect, Target

_MOST_SECONDS = 1.0
_LOOK_EVERY = 500


class Watched:
    """Runs inputs, and measures them.

    :param fresh: libFuzzer's folder for inputs that reach new code.
    :param found: its folder for inputs that break a rule. libFuzzer writes there at its end, but may be
        killed first.
    """

    def __init__(self, target: Target, quiet: float, fresh: str, found: str) -> None:
        self._target = target
        self._found = Path(found)
        self._quiet = quiet
        self._fresh = Path(fresh)
        self._runs = 0
        self._slowest = 0.0
        self._changed, self._last_new = 0, 0.0

    def __call__(self, data: bytes) -> None:
        """Pass one input to the target."""
        random.seed(0)
        try:
            took = self._measured(data)
        except Exception:
            (self._found / f"crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)
            raise
        self._runs += 1
        if took > self._slowest:
            self._slowest = took
            _say(f"slowest: {took:.4f} s, execution {self._runs}")
        if not self._runs % _LOOK_EVERY and self._quiet:
            self._look()

    def _measured(self, data: bytes) -> float:
        """Run one input; return its processor time in seconds."""
        began = time.process_time()
        self._target.run(data)
        took = time.process_time() - began
        if took > _MOST_SECONDS:
            raise Defect(f"{took:.1f} s of processor time")
        return took

    def _look(self) -> None:
        """Exit if there was no new input for too long. libFuzzer itself counts only wall time."""
        now, changed = time.process_time(), self._fresh.stat().st_mtime_ns
        if changed != self._changed:
            self._changed, self._last_new = changed, now
        if now - self._last_new > self._quiet:
            _say(f"quiet: {self._runs} executions")
            os._exit(0)


def main() -> None:
    name, planted, quiet, fresh, found, *flags = sys.argv[1:]
    uuid.uuid4 = _uuid4
    with atheris.instrument_imports(include=["haclient", "broker_stub"]):
        from tests.fuzz.targets import make

        target = make(name)
    arguments = {}
    if target.scripted:
        arguments = {"custom_mutator": _mutate, "custom_crossover": script.splice}
    elif target.mutates:
        arguments = {
            "custom_mutator": lambda data, limit, seed: target.mutated(data, limit, seed, atheris.Mutate)
        }
    if target.words:
        words = _dictionary(target.words)
        flags.append(f"-dict={words.name}")
    # To merge, libFuzzer restarts itself through a shell.
    again = shlex.join([sys.executable, "-m", "tests.fuzz.session", *sys.argv[1:6]])
    watched = Watched(target, float(quiet), fresh, found)
    with target.planted() if planted == "planted" else nullcontext():
        atheris.Setup([again, *flags], watched, internal_libfuzzer=True, **arguments)
        atheris.Fuzz()


def _dictionary(words: tuple[bytes, ...]) -> IO[str]:
    """Return a dictionary file for libFuzzer, which reads it at its start. The file is deleted with the
    object.
    """
    file = tempfile.NamedTemporaryFile("w", prefix="words-")  # noqa: SIM115 - it must outlive this function
    for word in words:
        file.write('"' + "".join(f"\\x{value:02x}" for value in word) + '"\n')
    file.flush()
    return file


def _mutate(data: bytes, limit: int, seed: int) -> bytes:
    return script.mutate(data, limit, seed, atheris.Mutate)


def _uuid4() -> uuid.UUID:
    """Return a UUID from ``random``, so that each run of an input gets the same."""
    return uuid.UUID(int=random.getrandbits(128), version=4)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
