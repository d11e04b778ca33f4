"""What an arbiter is, and its record as bytes.

The record is one line of JSON: ``{"number": 7, "claim": "5f0c...", "cluster": "61d2...", "origin": 0,
"check": "9a3b..."}``.  People can read it; the check keeps a cut or edited one from being believed.  A
version that knew no cluster wrote none; it takes a record with one for corrupted, and so never drops it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

from broker_stub.election.generation import ArbiterRecord


class ArbiterUnavailableError(Exception):
    """The arbiter did not answer, or with something that cannot be its record."""


class ArbiterMissingError(ArbiterUnavailableError):
    """There is no such arbiter; somebody has to make it."""


class Arbiter(Protocol):
    """Holds the record."""

    async def read(self) -> ArbiterRecord:
        """The record; (0, "") if there was never one.

        :raises ArbiterUnavailableError: if it is unknown.
        """
        ...

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; whether it was.

        :raises ArbiterUnavailableError: if that is unknown: the record may have been replaced.
        """
        ...

    async def close(self) -> None:
        """Let go of connections.  Never waits for an arbiter that does not answer."""
        ...


def encode(record: ArbiterRecord) -> bytes:
    """The record as a line."""
    named = {"cluster": record.cluster, "origin": record.origin} if record.cluster else {}
    fields = {"number": record.generation, "claim": record.claim, **named, "check": _check(record)}
    return json.dumps(fields).encode() + b"\n"


def decode(data: bytes, where: str) -> ArbiterRecord:
    """The record in a line.

    :param where: what holds it, for the error.
    :raises ArbiterUnavailableError: if it isn't one.
    """
    try:
        fields = json.loads(data)
        generation, claim, check = fields["number"], fields["claim"], fields["check"]
        cluster, origin = fields.get("cluster", ""), fields.get("origin", 0)
    except (ValueError, TypeError, KeyError):
        raise ArbiterUnavailableError(f"{where} is corrupted: it holds {data[:80]!r}") from None
    numbers, texts = (generation, origin), (claim, cluster)
    if any(type(n) is not int or n < 0 for n in numbers) or any(type(text) is not str for text in texts):
        raise ArbiterUnavailableError(f"{where} is corrupted: it holds {data[:80]!r}")
    record = ArbiterRecord(generation, claim, cluster, origin)
    if check != _check(record):
        raise ArbiterUnavailableError(f"{where} is corrupted: its check does not fit generation {generation}")
    return record


def _check(record: ArbiterRecord) -> str:
    named = f" {record.cluster} {record.origin}" if record.cluster else ""
    return hashlib.sha256(f"{record.generation} {record.claim}{named}".encode()).hexdigest()[:16]
