"""Simulates a network failure of a client's connection."""

from __future__ import annotations

import proton

from haclient import aio


def cut(connection: aio.Connection) -> None:
    """Drop the socket as a network failure would; the connection recovers."""
    engine = connection._core._engine
    if engine is not None:
        engine.abort(proton.Condition("haclient:cut", "for the test"))
