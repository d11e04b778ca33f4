"""A second producer of telemetry, which imports nothing of the first: its only source is docs/telemetry.md.

Each story has one result to find, at round times, so that it can be computed by hand;
``test_by_hand`` has the results.  Times are seconds after eight o'clock.  Two observers write lines at 1000,
which is ``as_of``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

EIGHT = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
BOOTED = 5000.0  # s; uptime of the machines at eight


class Process:
    """One process with one connection.

    :param source: its name; ``client``: the client's name, if it differs.
    :param clock: error of its wall clock in seconds.
    """

    def __init__(
        self, source: str, *, cluster: str | None, client: str | None = None, clock: float = 0.0
    ) -> None:
        self._source, self._client, self._cluster = source, client or source, cluster
        self.clock = clock
        self.outage = 1
        self.lines: list[str] = []
        self.number = 0
        self._began: float | None = None
        self._attempts = 0

    def line(self, at: float, kind: str, **facts: Any) -> None:
        """Write one line; names of facts have ``_`` for ``.``."""
        self.number += 1
        given = {
            "messaging.client.id": self._client,
            "service.name": "by hand",
            "service.instance.id": self._source,
            "haclient.connection.number": 1,
            "haclient.sequence": self.number,
            "haclient.monotonic": round(BOOTED + at, 6),
            "haclient.cluster": self._cluster,
            "haclient.outage.number": self.outage,
            "haclient.outage.id": f"{self._client}/1/{self.outage}",
        }
        given |= {_key(name): value for name, value in facts.items()}
        line = {
            "specversion": "1.0",
            "id": f"{self._source}-{self.number}",
            "source": f"/haclient/{self._source}",
            "type": f"haclient.connection.{kind}",
            "time": wall(at + self.clock),
            "subject": f"{self._client}/1",
            "dataschema": "urn:haclient:telemetry:1",
            "data": {name: value for name, value in given.items() if value is not None},
        }
        self.lines.append(json.dumps(line))

    def failed(self, at: float, host: str) -> None:
        """Write an attempt that was refused."""
        self._attempt(at, host, error_type="refused")

    def connected(self, at: float, host: str) -> None:
        self._attempt(at, host)
        self.line(
            at,
            "connected",
            haclient_attempt_number=self._attempts,
            haclient_outage_duration=round(at - (self._began or 0.0), 6),
            haclient_replayed=0,
            server_address=host,
            server_port=5672,
        )

    def _attempt(self, at: float, host: str, **facts: Any) -> None:
        self._attempts += 1
        self._began = at if self._began is None else self._began
        there = {"server_address": host, "server_port": 5672}
        number = {"haclient_attempt_number": self._attempts, "haclient_attempt_duration": 0.01}
        self.line(at, "attempt", **number, **there, **facts)

    def lost(self, at: float, host: str, kind: str | None = "cut") -> None:
        self.outage += 1
        self._attempts, self._began = 0, at
        there = {"server_address": host, "server_port": 5672}
        how = {
            "haclient_close_kind": kind,
            "haclient_close_reason": "it was killed" if kind == "cut" else None,
        }
        self.line(at, "lost", haclient_unsettled=0, **how, **there)

    def alive(self, at: float, state: str = "connected") -> None:
        self.line(at, "alive", haclient_state=state)


def _key(name: str) -> str:
    return name.replace("_", ".")


def wall(at: float) -> str:
    return (EIGHT + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def watchers() -> Iterator[Process]:
    for number in (1, 2):
        one = Process(f"watcher-{number}", cluster="quiet")
        one.connected(1.0, "quiet-a")
        one.alive(1000.0)
        yield one


def ends() -> Iterator[Process]:
    """Tell one outage of each end, and one client that never connected."""
    back, gave_up, closed, replaced, silent, is_open = (
        Process(f"ends-{name}", cluster="ends")
        for name in ("back", "gave-up", "closed", "replaced", "silent", "open")
    )
    for place, one in enumerate((back, gave_up, closed, replaced, silent)):
        one.connected(10.0, "ends-a")
        one.lost(100.0 + 20 * place, "ends-a", "silence" if one is silent else "cut")
    is_open.connected(10.0, "ends-a")
    back.failed(101.0, "ends-a")
    back.connected(103.5, "ends-a")
    back.number += 2  # two lines are missing
    back.alive(990.0)
    gave_up.failed(121.0, "ends-a")
    gave_up.line(180.0, "gave_up", haclient_outage_duration=60.0, haclient_attempt_number=1)
    closed.line(170.0, "closed")
    replaced.failed(165.0, "ends-a")
    again = Process("ends-replaced-again", cluster="ends", client="ends-replaced")
    again.connected(300.0, "ends-a")
    again.alive(990.0)
    silent.failed(190.0, "ends-a")
    is_open.lost(900.0, "ends-a", None)  # as older clients wrote it
    is_open.failed(901.0, "ends-a")
    is_open.failed(955.0, "ends-a")
    never, soon = (Process(f"ends-{name}", cluster=None) for name in ("never", "soon"))
    for at in (20.0, 80.0, 985.0):
        never.failed(at, "ends-a")
    for at in (970.0, 990.0):
        soon.failed(at, "ends-a")
    yield from (back, gave_up, closed, replaced, again, silent, is_open, never, soon)


def loop() -> Iterator[Process]:
    """Let an endpoint lose its four connections three times, each time for a second."""
    for number in range(4):
        one = Process(f"loop-{number}", cluster="loop")
        one.connected(10.0, "loop-a")
        for at in (110.0, 210.0, 310.0):
            one.lost(at + number / 10, "loop-a")
            one.connected(at + number / 10 + 1, "loop-a")
        one.alive(990.0)
        yield one


def restart() -> Iterator[Process]:
    """Let four connections fail over in two seconds."""
    for number in range(4):
        one = Process(f"restart-{number}", cluster="restart")
        one.connected(10.0, "restart-a")
        one.lost(500.0 + number / 10, "restart-a", "close")
        one.connected(502.0 + number / 10, "restart-b")
        one.alive(990.0)
        yield one


def night() -> Iterator[Process]:
    """Lose 100 connections at 300: 99 are back by 310, one at 700.  Lose another 100 at 500: all are back by
    510.
    """
    for number in range(101):
        one = Process(f"night-{number}", cluster="night")
        back = 10.0 if number >= 98 else (number + 1) / 10
        if number == 100:
            one.connected(400.0, "night-b")
        else:
            one.connected(5.0, "night-a")
            one.lost(300.0, "night-a")
            one.connected(700.0 if number == 99 else 300.0 + back, "night-b")
        if number != 99:
            one.lost(500.0, "night-b", "silence")
            one.connected(500.0 + back, "night-a")
        one.alive(990.0)
        yield one


def delays() -> Iterator[Process]:
    """Write 60 equal delays, and 60 delays that are spread as evenly as possible."""
    one = Process("delays", cluster="delays")
    for number in range(60):
        common = {
            "haclient_backoff_strategy": "full",
            "haclient_backoff_base": 0.5,
            "haclient_backoff_max": 10.0,
        }
        one.line(20.0 + number, "backoff", haclient_backoff_delay=0.25, haclient_backoff_round=3, **common)
        even = 0.5 * (number + 0.5) / 60
        one.line(20.5 + number, "backoff", haclient_backoff_delay=even, haclient_backoff_round=4, **common)
    one.connected(100.0, "delays-a")
    one.alive(990.0)
    yield one


def clocks() -> Iterator[Process]:
    """Write one clock that is an hour fast, and one that is set 30 s ahead while it runs."""
    fast = Process("fast", cluster="clocks", clock=3600.0)
    fast.connected(10.0, "clocks-a")
    fast.alive(990.0)
    was_set = Process("was-set", cluster="clocks")
    was_set.connected(10.0, "clocks-a")
    was_set.alive(70.0)
    was_set.clock = 30.0
    for at in (130.0, 190.0, 250.0):
        was_set.alive(at)
    yield from (fast, was_set)


def files() -> list[list[str]]:
    """Return the lines of three files: with copies, and with three lines that are in quarantine."""
    stories = (watchers(), ends(), loop(), restart(), night(), delays(), clocks())
    lines = [line for story in stories for process in story for line in process.lines]
    assert max(Counter(lines).values()) == 1
    made = [lines[place::3] for place in range(3)]
    made[1] += made[0][:5]  # copies
    odd = Process("odd", cluster="quiet")
    odd.alive(500.0)
    made[2] += [
        "kernel: this is no telemetry",
        made[0][0][:-9],
        odd.lines[0].replace(wall(500.0), "+12026-11-20T08:08:20Z"),
    ]
    return made
