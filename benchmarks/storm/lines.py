"""The protocol between workers and the storm: one JSON object a line.

From a worker, on standard output (``at`` is CLOCK_MONOTONIC in seconds, ``client`` a number).  The first key
is the type of the line:

    =============  ========================  ==========================================================
    ``what``       other keys                meaning
    =============  ========================  ==========================================================
    ``ready``                                the program runs and takes commands
    ``attempt``    client, at, to            the client dials ``host:port``
    ``usable``     client, at                its Begin was answered
    ``lost``       client, at                its connection ended
    ``redial``     client, at                its library ended the connection for good; the application
                                             dials again
    ``gave_up``    client, at, why           the client makes no more attempts
    ``defect``     at, why                   an error of the library ended its event loop; the worker
                                             restarted it
    ``settled``    client, at, number, took  the primary accepted the client's message of that number,
                                             ``took`` seconds after it was first given to the library
    =============  ========================  ==========================================================

To a worker, on standard input: ``connect`` (``over``: seconds over which the first dials are spread) and
``send`` (``count`` messages a client at random moments of the next ``over`` seconds).  Workers of kind
``haclient`` also take ``steady`` (messages for ever, ``over`` seconds apart on average).  A worker ends when
its input ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a worker; ``what`` decides which fields are set."""

    what: str
    client: int = -1
    at: float = 0.0
    to: str = ""
    number: int = -1
    took: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One line to a worker."""

    do: str
    over: float = 0.0
    count: int = 0


def read_line(text: bytes) -> Line | None:
    """Parse a line of a worker; return ``None`` for any other text, such as a warning."""
    try:
        facts = json.loads(text)
        return Line(**facts)
    except (ValueError, TypeError):
        return None


def format_line(what: str, **facts: Any) -> str:
    """Format a line of a worker."""
    return json.dumps({"what": what, **facts}, separators=(",", ":")) + "\n"


def read_command(text: str | bytes) -> Command:
    """Parse a line to a worker."""
    return Command(**json.loads(text))


def write_command(command: Command) -> bytes:
    """Format a line to a worker."""
    return json.dumps({"do": command.do, "over": command.over, "count": command.count}).encode() + b"\n"


def body(client: int, number: int) -> str:
    """Return the text of a message, unique within the storm."""
    return f"{client}/{number}"
