"""Computes a grid: every policy in every cell, with several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.grid.bars import Bars, Outcome, bars, broken, outcome
from benchmarks.grid.cache import Cache, Figures
from benchmarks.grid.cells import Cell
from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import PRESETS, Preset
from haclient.command_line.python import safe_path
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

Progress = Callable[[int, int], None]
"""Called after each computation with the number done and the total."""

_SLOWER = 30  # factor by which simulating our own clients takes longer than a preset


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One cell with all its policies.

    :param ours: this package's policies by name; ``presets``: other clients' policies.
    :param broken: for each of ours, the bars that do not hold (see ``bars``).
    """

    cell: Cell
    bars: Bars
    ours: Mapping[str, Outcome]
    presets: Mapping[str, Outcome]
    broken: Mapping[str, Sequence[str]]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON; infinite ones become ``None``."""
        cell = {name: getattr(self.cell, name) for name in ("members", "kind", "clients", "outage", "best")}
        policies = {**self.ours, **self.presets}
        found = {
            **cell,
            "bars": asdict(self.bars),
            "broken": {name: list(words) for name, words in self.broken.items()},
            "policies": {name: asdict(each) for name, each in policies.items()},
        }
        plain: dict[str, Any] = _finite(found)
        return plain


@dataclass(frozen=True, slots=True)
class _Unit:
    key: str
    scenarios: tuple[Scenario, ...]
    client: Policy | Preset

    @property
    def weight(self) -> float:
        """About how long it takes."""
        one = self.scenarios[0]
        factor = 1 if isinstance(self.client, Preset) else _SLOWER
        return len(self.scenarios) * one.clients * (one.outage + one.ideal + 1) * factor


def grid(
    every: Sequence[Cell],
    ours: Mapping[str, Policy],
    *,
    cache: Cache,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Judged]:
    """Compute and judge some cells.

    :param ours: our policies by name.
    :param cache: results that are there already, and the place for new ones.
    :param jobs: processes; all processors without it, this process alone with 1.
    """
    clients: dict[str, Policy | Preset] = {**ours, **PRESETS}
    keys = {(cell, name): _unit(cell, client, cache) for cell in every for name, client in clients.items()}
    missing = {unit.key: unit for unit in keys.values() if cache.get(unit.key) is None}
    total = len({unit.key for unit in keys.values()})
    done = total - len(missing)
    for key, figures in _compute(sorted(missing.values(), key=lambda unit: -unit.weight), jobs):
        cache.put(key, figures)
        done += 1
        if progress is not None:
            progress(done, total)
    return [
        _judge(cell, {name: outcome(cache.get(keys[cell, name].key) or ()) for name in clients}, ours)
        for cell in every
    ]


def _unit(cell: Cell, client: Policy | Preset, cache: Cache) -> _Unit:
    scenarios = tuple(cell.scenario(seed) for seed in cell.seeds)
    return _Unit(cache.key(scenarios, client), scenarios, client)


def _compute(units: Sequence[_Unit], jobs: int | None) -> Iterator[tuple[str, list[Figures]]]:
    processes = min(len(units), jobs or os.cpu_count() or 1)
    if processes <= 1:
        for unit in units:
            yield unit.key, _figures(unit)
        return
    spawn = multiprocessing.get_context("spawn")
    with safe_path(), ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        with _without_interrupts():
            futures = {pool.submit(_figures, unit): unit.key for unit in units}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except (KeyboardInterrupt, GeneratorExit):  # some units take minutes
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes here that do not get the SIGINT of a terminal; this one gets it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _figures(unit: _Unit) -> list[Figures]:
    return [simulate(scenario, unit.client).figures() for scenario in unit.scenarios]


def _judge(cell: Cell, outcomes: Mapping[str, Outcome], ours: Mapping[str, Policy]) -> Judged:
    presets = {name: outcomes[name] for name in PRESETS}
    limits = bars(cell, presets)
    return Judged(
        cell=cell,
        bars=limits,
        ours={name: outcomes[name] for name in ours},
        presets=presets,
        broken={name: broken(outcomes[name], limits, presets) for name in ours},
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, float):
        return value if value < float("inf") else None
    return value
