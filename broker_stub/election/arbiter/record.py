"""The interface of an arbiter, and the encoding of its record.

The record is one line of JSON: ``{"number": 7, "claim": "5f0c...", "cluster": "61d2...", "origin": 0,
"check": "9a3b..."}``. It is readable for people; the check detects a truncated or edited record. A version
without cluster UUIDs wrote no ``cluster``. It treats a record with one as corrupted, and so never drops the
UUID.
"""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

from broker_stub.election.generation import ArbiterRecord


class ArbiterUnavailableError(Exception):
    """The arbiter did not answer, or its answer is not a valid record."""


class ArbiterMissingError(ArbiterUnavailableError):
    """The arbiter does not exist; an operator must create it."""


class Arbiter(Protocol):
    """The holder of the record."""

    async def read(self) -> ArbiterRecord:
        """Return the record; (0, "") if there was never one.

        :raises ArbiterUnavailableError: if the record is unknown.
        """
        ...

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        """Replace the record if it is ``expected``; return whether it was.

        :raises ArbiterUnavailableError: if the outcome is unknown: the record may have been replaced.
        """
        ...

    async def close(self) -> None:
        """Close connections, without waiting for an arbiter that does not answer."""
        ...


def encode(record: ArbiterRecord) -> bytes:
    """Encode a record as a line."""
    named = {"cluster": record.cluster, "origin": record.origin} if record.cluster else {}
    fields = {"number": record.generation, "claim": record.claim, **named, "check": _check(record)}
    return json.dumps(fields).encode() + b"\n"


def decode(data: bytes, where: str) -> ArbiterRecord:
    """Decode the record in a line.

    :param where: the location of the line, for the error.
    :raises ArbiterUnavailableError: if the line is not a valid record.
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
