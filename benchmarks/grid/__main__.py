"""``python -m benchmarks.grid``: haclient beside the policies of other clients, in virtual time.

``judge`` runs the grid, ``drawn`` storms that are drawn at random, ``compare`` one storm with all clients,
``sweep`` one client with varied storms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.grid import cases, report, sweep
from benchmarks.grid.brokers import BROKERS
from benchmarks.grid.cache import Cache
from benchmarks.grid.cells import Cell, Part, cells
from benchmarks.grid.drawn import FIGURES, POLICIES, QUANTILES, drawn_cells, quantiles, ratios
from benchmarks.grid.drawn_picture import write_drawn_picture
from benchmarks.grid.known import compare as compare_with_known
from benchmarks.grid.picture import write_picture
from benchmarks.grid.presets import PRESETS
from benchmarks.grid.run import Judged, finite, grid, outcomes
from benchmarks.grid.run import Progress as Computed
from haclient.analysis.io.session import spark_session
from haclient.cli.commands.simulate import (
    COLUMNS,
    POLICY,
    SCENARIO,
    Assignment,
    draw,
    need_for,
    print_results,
    progress_bars,
    scenario_of,
)
from haclient.cli.exit_codes import LESS
from haclient.cli.options import check_reachable, plain_errors
from haclient.cli.spark import stopped_after
from haclient.command_line import interrupts
from haclient.command_line.groups import Group
from haclient.retry.policy import Policy
from haclient.retry.strategies import STRATEGIES, StrategyName
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario

_F = TypeVar("_F", bound=Callable[..., Any])
_WIDE = 200  # characters; a file has room
_OF_CELLS = {"clients", "outage", "members", "when_full", "dead_host", "retry_after", "parking", "seed"}
_OF_OPTIONS = {"backoff_strategy"}


class Axis(click.ParamType[tuple[str, tuple[Any, ...]]]):
    """A parameter and its values.

    :param names: of the parameters.
    """

    name = "key=a,b,c"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def convert(
        self,
        value: str | tuple[str, tuple[Any, ...]],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, tuple[Any, ...]]:
        """Divide it; the values are JSON, or plain text."""
        if isinstance(value, tuple):
            return value
        key, _, texts = value.partition("=")
        key = key.strip().replace("-", "_")
        if key not in self._names or not texts:
            self.fail(f"{value!r} is not like clients=20,100; there are {', '.join(self._names)}", param, ctx)
        return key, tuple(_read(text) for text in texts.split(","))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_BROKER = click.option(
    "--broker",
    type=click.Choice(list(BROKERS)),
    help="The setup rate, backlog and passive members of a broker that was measured; --set changes them.",
)
_JSON = click.option(
    "--json", "as_json", type=click.Path(dir_okay=False, allow_dash=True), help="Write the figures as JSON."
)
_STRATEGY = click.option(
    "--strategy", "strategies", type=click.Choice(list(STRATEGIES)), multiple=True, help="Of haclient."
)
_JOBS = click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: all processors]")
_CACHE = click.option(
    "--cache",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where results are kept, to go on there; what a change of the code concerns is computed again.",
)
_PICTURE = click.option(
    "--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), help="Write a PNG or an SVG."
)


def _set(without: set[str]) -> Callable[[_F], _F]:
    return click.option(
        "--set",
        "settings",
        type=Assignment(without),
        multiple=True,
        help="A part of the scenario, or an option of haclient as in a URL: setup_rate=50, backoff_max=5.",
    )


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compare haclient with the reconnect policies of other clients, in virtual time."""


# -- the grid --------------------------------------------------------------------------------------------


@main.command()
@click.argument("part", type=click.Choice(get_args(Part)), default="whole")
@click.option(
    "--sweep",
    "axes",
    type=Axis(("clients", "outage", "members", "kind")),
    multiple=True,
    help="Other cells: clients=20, kind=reset.",
)
@_STRATEGY
@_set(_OF_CELLS | _OF_OPTIONS | {"standby"})
@_BROKER
@click.option(
    "--check",
    is_flag=True,
    help="Compare with what is known of the default options: exit with 1 when a cell does not hold "
    "that should, or holds that is known not to.",
)
@_JOBS
@_CACHE
@_JSON
@_PICTURE
def judge(
    *,
    part: Part,
    axes: Sequence[tuple[str, tuple[Any, ...]]],
    strategies: Sequence[StrategyName],
    settings: Sequence[tuple[str, Any]],
    broker: str | None,
    check: bool,
    jobs: int | None,
    cache: Path | None,
    as_json: str | None,
    picture: Path | None,
) -> None:
    """Run many storms at an ordinary broker, and judge haclient beside all presets.

    The whole: 5 to 2,000 clients, outages of 0.3 to 300 s, three kinds, one address and three.  short: the
    longer the outage, the fewer clients.  large: 20,000 clients.
    """
    point = _point(broker, settings)
    base = {name: value for name, value in point.items() if name in SCENARIO}
    policy = _policy(point)
    if check and (strategies or policy != Policy() or scenario_of(base) != Scenario()):
        raise click.UsageError("--check is about the default options")
    ours = {f"haclient, {name}": replace(policy, backoff_strategy=name) for name in strategies} or {
        "haclient": policy
    }
    every = _cells(part, dict(axes), base)
    need_for(picture, None)
    found = _judged(every, ours, cache, jobs)
    first = next(iter(ours))
    if as_json is not None:
        with click.open_file(as_json, "w", encoding="utf-8") as file:
            file.write(json.dumps([judged.as_json() for judged in found], indent=1) + "\n")
    if as_json != "-":
        for name in ours:
            _print_grid(found, name)
    if picture is not None:
        write_picture(found, picture, title=report.summary(found, first), policy=first)
    if check:
        _compare_with_known(found, first, to_stderr=as_json == "-")


def _cells(part: Part, axes: Mapping[str, Sequence[Any]], base: Mapping[str, Any]) -> list[Cell]:
    try:
        every = cells(part, axes, base)
        for cell in every:
            cell.scenario(1)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    return every


def _judged(
    every: Sequence[Cell], ours: Mapping[str, Policy], path: Path | None, jobs: int | None
) -> list[Judged]:
    with _computing(path) as (cache, progress):
        return grid(every, ours, cache=cache, jobs=jobs, progress=progress)


@contextmanager
def _computing(path: Path | None) -> Iterator[tuple[Cache, Computed]]:
    with progress_bars() as bars, Cache(path) as cache:
        task = bars.add_task("cells and policies", total=None)
        yield cache, lambda done, total: bars.update(task, completed=done, total=total)


def _compare_with_known(found: Sequence[Judged], policy: str, *, to_stderr: bool) -> None:
    compared = compare_with_known(found, policy)
    for line in report.comparison(compared, policy):
        click.echo(line, err=to_stderr)
    if not compared.is_as_known:
        raise click.exceptions.Exit(LESS)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _print_grid(found: Sequence[Judged], policy: str) -> None:
    console = _console()
    table = Table(box=None, pad_edge=False)
    for name in report.COLUMNS:
        table.add_column(name, justify="left" if name in report.TEXTS else "right", no_wrap=True)
    for judged in found:
        table.add_row(*report.row(judged, policy))
    console.print(table)
    console.print(report.summary(found, policy))
    console.print(report.politeness(found, policy))


# -- storms drawn at random ------------------------------------------------------------------------------


@main.command()
@click.option("--seed", type=int, required=True, help="Of the draw; take one that was not looked at.")
@click.option("--cells", "count", type=click.IntRange(min=1), default=200, show_default=True, help="To draw.")
@click.option(
    "--client-seconds",
    "most",
    type=click.FloatRange(min=0),
    default=50_000,
    show_default=True,
    help="Leave out cells that cost more: clients times outage and best possible time, over all seeds.  "
    "2,000 take a second, or longer if a client never comes back.",
)
@_JOBS
@_CACHE
@_JSON
@_PICTURE
def drawn(
    *,
    seed: int,
    count: int,
    most: float,
    jobs: int | None,
    cache: Path | None,
    as_json: str | None,
    picture: Path | None,
) -> None:
    """Draw storms at random, and compare haclient's default with the policies of others in each.

    Shows quantiles over the cells, of each policy's ratio to the best one in the cell.  Storms have 5 to
    5,000 clients, 20 to 2,000 setups a second, outages of 0.3 to 60 s, a backlog of 16 to 4,096 that
    resets or is silent, round trips of 0.1 to 200 ms, one address or three, a dead process or host.
    """
    every = drawn_cells(count, seed)
    chosen = [cell for cell in every if cell.client_seconds <= most]
    if not chosen:
        raise click.UsageError(f"all {count} cells have more than {most:,.0f} client-seconds")
    need_for(picture, None)
    with _computing(cache) as (results, progress):
        found = outcomes(chosen, POLICIES, cache=results, jobs=jobs, progress=progress)
    by_figure = {name: ratios(found, figure) for name, figure in FIGURES.items()}
    said = (
        f"{len(chosen)} of {count} cells drawn with seed {seed}; "
        f"{count - len(chosen)} left out, of more than {most:,.0f} client-seconds"
    )
    if as_json is not None:
        rows = [
            {**asdict(cell.first), "policies": {name: asdict(each) for name, each in of_cell.items()}}
            for cell, of_cell in zip(chosen, found, strict=True)
        ]
        with click.open_file(as_json, "w", encoding="utf-8") as file:
            file.write(json.dumps(finite({"drawn": said, "cells": rows}), indent=1) + "\n")
    if as_json != "-":
        _print_ratios(by_figure, said)
    if picture is not None:
        write_drawn_picture(by_figure, picture, title=said)


def _print_ratios(by_figure: Mapping[str, Mapping[str, Sequence[float]]], said: str) -> None:
    console = _console()
    for figure, of_policy in by_figure.items():
        console.print(f"{figure}: ratio to the best of each cell")
        table = Table(box=None, pad_edge=False)
        table.add_column("policy", no_wrap=True)
        for name in QUANTILES:
            table.add_column(name, justify="right", no_wrap=True)
        for policy, values in of_policy.items():
            table.add_row(policy, *map(report.number, quantiles(values).values()))
        console.print(table)
    console.print(said)


# -- one storm -------------------------------------------------------------------------------------------


@main.command()
@_STRATEGY
@click.option("--preset", "presets", type=click.Choice(list(PRESETS)), multiple=True, help="Another client.")
@_set(_OF_OPTIONS)
@_BROKER
@_JSON
@click.option("--plot", "png", type=click.Path(dir_okay=False, path_type=Path), help="Write a PNG.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that needs no network."
)
def compare(
    *,
    strategies: Sequence[StrategyName],
    presets: Sequence[str],
    settings: Sequence[tuple[str, Any]],
    broker: str | None,
    as_json: str | None,
    png: Path | None,
    html: Path | None,
) -> None:
    """Run one storm with several clients.

    Without --strategy and --preset it compares all of them: haclient with retry-after and, like the others,
    with an ordinary broker.
    """
    point = _point(broker, settings)
    scenario, policy = scenario_of(point), _policy(point)
    chosen = _cases(scenario, policy, strategies, presets, is_given="retry_after" in point)
    need_for(png, html)
    with progress_bars() as bars:
        results = [_run(case, bars) for case in chosen]
    rows = [result.figures() for result in results]
    print_results(rows, as_json, scenario=scenario)
    draw(results, rows, png, html)


def _cases(
    scenario: Scenario,
    policy: Policy,
    strategies: Sequence[StrategyName],
    presets: Sequence[str],
    *,
    is_given: bool,
) -> Sequence[cases.Case]:
    """Return the cases to compare; ``is_given``: the broker's ``retry-after`` was given."""
    one_broker = is_given or scenario.parking or scenario.fleet_known
    if not strategies and not presets:
        if not one_broker:
            return cases.comparison(scenario, policy)
        strategies = (policy.backoff_strategy,)
    brokers = (scenario,) if one_broker else (scenario, replace(scenario, retry_after=False))
    return (
        *(cases.strategy(name, each, policy) for name in strategies for each in brokers),
        *(cases.preset(name, scenario) for name in presets),
    )


def _run(case: cases.Case, bars: Progress) -> Result:
    task = bars.add_task(case.name, total=case.scenario.clients)
    result = case.run(lambda back, _: bars.update(task, completed=back))
    bars.update(task, completed=len(result.back))
    return result


# -- one storm, varied -----------------------------------------------------------------------------------


@main.command(name="sweep")
@click.argument("axes", type=Axis(sorted(sweep.PARAMETERS)), nargs=-1, required=True, metavar="KEY=A,B,C...")
@_set(_OF_OPTIONS)
@_BROKER
@click.option("--spark", is_flag=True, help="Spread it over Spark.")
@click.option("--master", help="Spark master; local[*] without it.")
@_JSON
def sweep_command(
    *,
    axes: Sequence[tuple[str, tuple[Any, ...]]],
    settings: Sequence[tuple[str, Any]],
    broker: str | None,
    spark: bool,
    master: str | None,
    as_json: str | None,
) -> None:
    """Run every combination of some parameters: setup_rate=100,200 client=full,kafka."""
    if master and not spark:
        raise click.UsageError("--master goes with --spark")
    try:
        points = sweep.points(_point(broker, settings), dict(axes))
        for point in points:
            sweep.case(point)
    except (TypeError, ValueError, KeyError) as error:
        raise click.UsageError(str(error)) from error
    rows = _on_spark(points, master) if spark else _here(points)
    print_results(rows, as_json, columns=(*dict(axes), *COLUMNS))


def _here(points: Sequence[sweep.Point]) -> list[dict[str, Any]]:
    with progress_bars() as bars:
        return list(bars.track(sweep.run(points), total=len(points), description="points"))


def _on_spark(points: Sequence[sweep.Point], master: str | None) -> list[dict[str, Any]]:
    with plain_errors():
        check_reachable(master)
        with stopped_after(lambda: spark_session(master)) as session:
            return sweep.run_on_spark(session, points)


# -- the options -----------------------------------------------------------------------------------------


def _point(broker: str | None, settings: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The options as parameters of a scenario and a policy."""
    point = {**(BROKERS[broker] if broker else {}), **dict(settings)}
    return {"retry_after": False, **point} if point.get("fleet_known") else point


def _policy(point: Mapping[str, Any]) -> Policy:
    return Policy(**{name: value for name, value in point.items() if name in POLICY})


if __name__ == "__main__":
    interrupts.command_starts()
    main()
