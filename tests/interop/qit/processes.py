"""Runs a shim as a process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop.qit.checkout import Shim, environment

# Seconds in addition to a receiver's own limit: Java starts slowly.
_GRACE = 60.0
_SHOWN_ERROR = 200


class ShimError(Exception):
    """A shim failed; the text is its error output."""

    def __init__(self, shim: Shim, text: str) -> None:
        super().__init__(text)
        self.shim = shim


async def call(shim: Shim, arguments: Sequence[str], seconds: float) -> Mapping[str, Any]:
    """Run a shim, and return its output.

    :param arguments: ``send`` or ``receive``, the broker, the queue, and further arguments.
    :raises ShimError: if it does not end, or prints no JSON.
    """
    process = await asyncio.create_subprocess_exec(
        str(shim.program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        env=environment(),
    )
    try:
        async with asyncio.timeout(seconds + _GRACE):
            out, complaints = await process.communicate()
    except TimeoutError:
        raise ShimError(shim, f"no end within {seconds + _GRACE:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    try:
        # The first value: a shim that sends its message twice prints two.
        said: Mapping[str, Any] = json.JSONDecoder().raw_decode(out.decode().lstrip())[0]
    except ValueError:
        text = _error_of(complaints) or "no output"
        raise ShimError(shim, f"{text} (exit code {process.returncode})") from None
    return said


def _error_of(complaints: bytes) -> str:
    """Return the line with the error from a program's standard error."""
    lines = [line.strip() for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|exception|timeout", line, re.IGNORECASE)]
    return (errors or lines or [""])[0][:_SHOWN_ERROR]
