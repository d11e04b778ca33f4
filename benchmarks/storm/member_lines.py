"""Reads the telemetry that the members wrote during a storm (``broker_stub.telemetry``)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_stub.election.roles import Role
from haclient.telemetry.schema import Kind


@dataclass(frozen=True, slots=True)
class Served:
    """The admissions and refusals of one member since it became primary.

    :param member: its name; ``since``: when it became primary.
    :param admitted: when each client was admitted; ``refused``: when each one was refused.
    :param refused_elsewhere: handshakes that other members ended with a refusal in the same time.
    """

    member: str
    since: float
    admitted: tuple[float, ...]
    refused: tuple[float, ...]
    refused_elsewhere: int


def served_between(folder: Path, killed_at: float, over_at: float) -> Served | None:
    """Return the admissions and refusals of the member that followed a killed primary.

    The result ends with the storm; it is ``None`` if no member followed.
    """
    lines = sorted(_lines(folder), key=_at)
    after = [line for line in lines if killed_at < _at(line) <= over_at]
    promoted = next((line for line in after if line["type"] == Kind.MEMBER_ROLE and _serves(line)), None)
    if promoted is None:
        return None
    member, since = str(promoted["data"]["haclient.member.name"]), _at(promoted)
    then = [line for line in after if _at(line) >= since]
    its = [line for line in then if line["data"]["haclient.member.name"] == member]
    admitted, refused = _times(its, Kind.MEMBER_ADMITTED), _times(its, Kind.MEMBER_REFUSED)
    elsewhere = len(_times(then, Kind.MEMBER_REFUSED)) - len(refused)
    return Served(member, since, admitted, refused, elsewhere)


def _times(lines: list[dict[str, Any]], kind: Kind) -> tuple[float, ...]:
    return tuple(_at(line) for line in lines if line["type"] == kind)


def _at(line: dict[str, Any]) -> float:
    return float(line["data"].get("haclient.monotonic", 0.0))


def _serves(line: dict[str, Any]) -> bool:
    return Role(line["data"]["haclient.member.role"]).serves


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every line of every file; the last line of a killed member may be torn."""
    for path in sorted(folder.glob("*.jsonl*")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for text in data.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line.get("type", "").startswith("haclient.member."):
                yield line
