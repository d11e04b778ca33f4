"""Telemetry of a small fleet as text, made without Spark: input for jobs, file by file.

It has the difficult cases: copies of a line in another file, lines of one outage in several files,
lines that are no telemetry, and clients that never came back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from haclient.telemetry.schema import DATA, DATASCHEMA, Kind

START = datetime(2026, 11, 20, 23, 59, 0, tzinfo=UTC)  # the fleet's night has two dates
NAMES = {key.column: key.name for key in DATA}
ENDPOINTS = ("broker-a", "broker-b")


class Client:
    """One connection, and the lines that it writes."""

    def __init__(self, number: int, prng: random.Random) -> None:
        self._name = f"client-{number}"
        self.version = f"1.{number % 2}"
        self._prng = prng
        self._sequence = 0
        self._outage = 1
        self._at = prng.uniform(0, 5)
        self.down = False

    def lines(self, outages: int) -> Iterator[str]:
        """Yield the lines of a first connect, and some outages."""
        yield from self._connect(0)
        for _ in range(outages):
            self._at += self._prng.uniform(20, 40)
            yield self._line(Kind.ALIVE, state="connected", generation=self._outage, **_server(self._outage))
            self._outage += 1
            yield self._line(
                Kind.LOST,
                reason="lost",
                unsettled=1,
                generation=self._outage - 1,
                **_server(self._outage - 1),
            )
            if self._prng.random() < 0.1:
                self.down = True
                return
            yield from self._connect(self._prng.randrange(1, 4))

    def _connect(self, failures: int) -> Iterator[str]:
        began = self._at
        for attempt in range(1, failures + 2):
            base = 0.1 * 2**attempt
            delay = self._prng.uniform(0, base)
            yield self._line(
                Kind.BACKOFF,
                backoff_base=base,
                backoff_delay=delay,
                backoff_round=attempt - 1,
                backoff_strategy="full",
                backoff_max=30.0,
            )
            self._at += delay
            failed = attempt <= failures
            yield self._line(
                Kind.ATTEMPT,
                attempt=attempt,
                attempt_duration=0.01,
                error_type="refused" if failed else None,
                **_server(self._outage + failed),
            )
        yield self._line(
            Kind.CONNECTED,
            outage_duration=self._at - began,
            attempt=failures + 1,
            generation=self._outage,
            replayed=1 if failures else None,
            **_server(self._outage),
        )

    def _line(self, kind: Kind, **facts: Any) -> str:
        self._sequence += 1
        self._at += 0.001
        facts |= {
            "client_id": self._name,
            "service": "orders",
            "service_version": self.version,
            "instance": f"instance-{self._name}",
            "connection": 1,
            "sequence": self._sequence,
            "monotonic": 1000 + self._at,
            "cluster": "prod",
            "outage": self._outage,
            "outage_id": f"{self._name}/1/{self._outage}",
        }
        time = START + timedelta(seconds=self._at)
        return json.dumps(
            {
                "specversion": "1.0",
                "id": f"{self._name}-{self._sequence}",
                "source": f"/haclient/instance-{self._name}",
                "type": kind.value,
                "time": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                "subject": f"{self._name}/1",
                "dataschema": DATASCHEMA,
                "data": {NAMES[column]: value for column, value in facts.items() if value is not None},
            }
        )


def files(clients: int, outages: int, seed: int, *, count: int = 4) -> list[list[str]]:
    """Return the lines of ``count`` files: each client's in order, and continued from file to file."""
    prng = random.Random(seed)
    made: list[list[str]] = [[] for _ in range(count)]
    for number in range(clients):
        lines = list(Client(number, prng).lines(outages))
        cuts = sorted(prng.randrange(len(lines) + 1) for _ in range(count - 1))
        for place, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(lines)], strict=True)):
            made[place] += lines[begin:end]
    for place in range(count):
        made[place] += prng.sample(made[place - 1], min(5, len(made[place - 1])))
        made[place].insert(prng.randrange(len(made[place])), f"kernel: no telemetry {place}")
    return made


def _server(number: int) -> dict[str, Any]:
    return {"server_address": ENDPOINTS[number % 2], "server_port": 5672}
