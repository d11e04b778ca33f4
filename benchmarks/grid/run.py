"""Computes a grid: every policy in every cell, with several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

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


class Storm(Protocol):
    """A cell of some grid: one scenario, simulated with several seeds."""

    @property
    def seeds(self) -> Sequence[int]:
        """Return the seeds."""

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario of one seed."""


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
        plain: dict[str, Any] = finite(found)
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
    """Compute some cells with our policies, by name, and all presets, and judge them; see ``outcomes``."""
    clients: dict[str, Policy | Preset] = {**ours, **PRESETS}
    found = outcomes(every, clients, cache=cache, jobs=jobs, progress=progress)
    return [_judge(cell, of_cell, ours) for cell, of_cell in zip(every, found, strict=True)]


def outcomes(
    every: Sequence[Storm],
    clients: Mapping[str, Policy | Preset],
    *,
    cache: Cache,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Outcome]]:
    """Compute the outcome of each client, by name, in each cell.

    :param cache: results that are there already, and the place for new ones.
    :param jobs: processes; all processors without it, this process alone with 1.
    """
    units = [{name: _unit(cell, client, cache) for name, client in clients.items()} for cell in every]
    by_key = {unit.key: unit for of_cell in units for unit in of_cell.values()}
    missing = [unit for unit in by_key.values() if cache.get(unit.key) is None]
    done = len(by_key) - len(missing)
    for key, figures in _compute(sorted(missing, key=lambda unit: -unit.weight), jobs):
        cache.put(key, figures)
        done += 1
        if progress is not None:
            progress(done, len(by_key))
    return [{name: outcome(cache.get(unit.key) or ()) for name, unit in of_cell.items()} for of_cell in units]


def _unit(cell: Storm, client: Policy | Preset, cache: Cache) -> _Unit:
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


def finite(value: Any) -> Any:
    """Replace infinite numbers by ``None``, for JSON."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    if isinstance(value, float):
        return value if value < float("inf") else None
    return value
