"""Calls that are cancelled and time out at random: all of them return, and their reports are true.

    make calls SEED=7        # 10,000 calls over each API; the suite makes fewer

Hypothesis draws the calls and the faults of the route; the seed is fixed unless ``CALLS_SEED`` is set.
The broker is a separate process behind a proxy.  The judge is a receiver with its own connection, which
drains the queue when every other connection is closed.  The first run produces each case of ``book.CASES``,
since chance rarely produces some of them.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.failover.calls import asyncio_calls, blocking_calls
from tests.failover.calls.book import Setting
from tests.failover.calls.judge import complaints, drained, feed, may_come_late, missing_cases
from tests.failover.calls.plan import BYTES_PER_STEP, Fault, steps
from tests.failover.calls.route import Route, route_to
from tests.members import Member, Members

_SEED = int(os.environ.get("CALLS_SEED", "14"))
_CALLS_PER_RUN = 250
_FED = 40
_GROWTH = 2 * 1024 * 1024
# These tests make more connections than a member admits by default in the same time.
_GREETS_ALL = {"log_level": "error", "accept_rate": "unlimited"}
_OPTIONS = {"backoff_base": 0.001, "backoff_max": 0.01, "attempt_timeout": 2.0}
_LIBC = ctypes.CDLL(None)
# From glibc's malloc.h.
_M_ARENA_MAX = -8


class Runs:
    """Runs in sequence, each with its own queues and connection.

    :ivar wrong: the contradictions of the first run that failed, and its plan; no run follows it.
    :ivar memory: of the process, after each run.
    """

    def __init__(self, calls: ModuleType, member: Member, route: Route) -> None:
        self.calls = 0
        self.wrong: list[str] = []
        self.cases: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.memory: list[int] = []
        self._run: Any = calls.run
        self._member = member
        self._route = route
        self._numbers = itertools.count()
        self._may_come_late: dict[str, frozenset[int]] = {}

    def run(self, data: bytes | None, **options: Any) -> None:
        """Run a plan, or with ``None`` the directed cases, and judge it."""
        if self.wrong:
            return
        plan = None if data is None else list(steps(data))
        name, fed = len(self._may_come_late), set(itertools.islice(self._numbers, _FED))
        setting = Setting(
            url=f"amqp://{self._route.address}",
            options={**_OPTIONS, **options},
            queue=f"calls-{name}",
            feed=f"feed-{name}",
            route=self._route,
            numbers=self._numbers,
        )
        feed(self._member.url, setting.feed, sorted(fed))
        self._run(setting, plan)
        book = setting.book
        sent, unreceived = drained(self._member.url, setting.queue, setting.feed)
        self.wrong = complaints(book, fed, sent, unreceived)
        if self.wrong and data is not None:
            self.wrong.append(f"{options}, bytes.fromhex({data.hex()!r})")
        self._may_come_late[setting.queue] = may_come_late(book, sent)
        self.calls += len(plan or ())
        self.faults.update(step.fault for step in plan or ())
        self.cases.update(book.cases)
        self.ended.update(book.ended)
        self.memory.append(_memory())

    def finish(self) -> None:
        """Judge late messages, after their queue was drained: none was accepted or reported undelivered."""
        late = drained(self._member.url, *self._may_come_late)
        for found, allowed in zip(late, self._may_come_late.values(), strict=True):
            self.wrong += [f"message {number} came late" for number in found if number not in allowed]
            self.wrong += [
                f"message {number} came {count} times" for number, count in found.items() if count > 1
            ]


def _memory() -> int:
    """Return the process's own memory in bytes, with C's: proton's messages are no Python objects."""
    gc.collect()
    _LIBC.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.fixture
def route(members: Members) -> Iterator[tuple[Member, Route]]:
    member = members.start("primary", role="primary", **_GREETS_ALL)
    with route_to(member.address) as made:
        yield member, made


def _make_calls(calls: ModuleType, route: tuple[Member, Route], count: int) -> Runs:
    runs = Runs(calls, *route)
    runs.run(None)

    @seed(_SEED)
    @settings(
        max_examples=count // _CALLS_PER_RUN,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        data=st.binary(min_size=_CALLS_PER_RUN * BYTES_PER_STEP, max_size=_CALLS_PER_RUN * BYTES_PER_STEP),
        window=st.sampled_from([1, 5, 20, 100]),
        delivery=st.sampled_from(["at-least-once", "at-most-once"]),
    )
    def run(data: bytes, window: int, delivery: str) -> None:
        runs.run(data, window=window, delivery=delivery)

    run()
    runs.finish()
    print(dict(runs.cases), dict(runs.ended), dict(runs.faults), [each >> 10 for each in runs.memory])  # noqa: T201
    assert not runs.wrong, f"seed {_SEED}: {runs.wrong}"
    assert runs.calls >= count
    assert missing_cases(runs.cases) == []
    assert {*runs.faults} == {*Fault}
    return runs


APIS = pytest.mark.parametrize("calls", [asyncio_calls, blocking_calls], ids=["aio", "blocking"])


@pytest.mark.slow
@APIS
def test_calls_at_random_return_and_report_what_is_so(calls: ModuleType, route: tuple[Member, Route]) -> None:
    _make_calls(calls, route, 1_000)


@pytest.mark.soak
@pytest.mark.timeout(600)
@APIS
def test_ten_thousand_calls_leave_nothing_behind(calls: ModuleType, route: tuple[Member, Route]) -> None:
    # With an arena for each thread, the memory depends on which thread needed it first.
    _LIBC.mallopt(_M_ARENA_MAX, 1)
    runs = _make_calls(calls, route, 10_000)
    half = runs.memory[len(runs.memory) // 2]
    assert runs.memory[-1] - half < _GROWTH
