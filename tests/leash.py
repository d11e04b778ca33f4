"""Processes that end with all their children, whenever their parent process ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import IO

# Runs a command in its own process group, which ends with the command or when its standard input is closed.
_LEASH = 'exec 3<&0; { read -r _ <&3; kill -KILL 0; } & "$@" </dev/null; kill -KILL 0'
_PATIENCE = 90.0


def start(
    *command: str, env: Mapping[str, str] | None = None, output: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own."""
    leash = ["sh", "-c", _LEASH, "sh", *command]
    return subprocess.Popen(
        leash, env=env, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the process and its children, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=_PATIENCE)
