"""``haclient simulate``: one reconnect storm in virtual time, with a row for each strategy and broker."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import click
from click.types import convert_type
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from haclient.cli.exit_codes import examples
from haclient.cli.options import UnusableError
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import parse_options
from haclient.command_line.groups import Command
from haclient.retry.policy import Policy, Standby
from haclient.retry.strategies import STRATEGIES, StrategyName
from haclient.simulation import plot
from haclient.simulation.arrivals import arrivals_of
from haclient.simulation.fleet import simulate as let_happen
from haclient.simulation.haclient_clients import name_of
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario, WhenFull

COLUMNS = {
    "last": "last",
    "ratio": "last/best",
    "p50": "p50",
    "p99": "p99",
    "peak_per_second": "peak/s",
    "attempts_per_client": "attempts",
    "syns_at_host": "SYN/s",
    "wasted_handshakes": "wasted",
}
_LARGE = 100  # from here on one decimal place is enough
SCENARIO = frozenset(field.name for field in fields(Scenario))
POLICY = frozenset(field.name for field in fields(Policy))
_WITH_OPTIONS = {
    *("clients", "setup_rate", "accept_rate", "outage", "backlog", "when_full", "dead_host"),
    *("retry_after", "members", "parking", "standby", "backoff_strategy"),
}


class Assignment(click.ParamType[tuple[str, Any]]):
    """A part of the scenario or an option of the client, and its value.

    :param without: the names that cannot be set so.
    """

    name = "name=value"

    def __init__(self, without: Collection[str] = ()) -> None:
        self._names = sorted((SCENARIO | POLICY).difference(without))

    def convert(
        self, value: str | tuple[str, Any], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Read the value as the scenario and the URL's options have it."""
        if isinstance(value, tuple):
            return value
        name, sign, text = value.partition("=")
        name = name.strip().replace("-", "_")
        if name not in self._names or not sign:
            self.fail(f"{value!r} is not like detection=0.5; there are {', '.join(self._names)}", param, ctx)
        if name in SCENARIO:
            default = getattr(Scenario(), name)
            return name, convert_type(float if default is None else type(default)).convert(text, param, ctx)
        try:
            return name, getattr(parse_options([(name, text)]), name)
        except ClusterURLError as error:
            self.fail(str(error), param, ctx)


_OPTION_GROUPS = {
    "Clients": ("clients", "strategy"),
    "Brokers": (
        "setup-rate", "accept-rate", "outage", "backlog", "when-full", "dead-host", "retry-after", "members",
        "park",
    ),
    "Both": ("set",),
    "Output": ("json", "plot", "html"),
}  # fmt: skip
_EXAMPLES = examples(
    "haclient simulate                                       # with retry-after, and without",
    "haclient simulate --clients 20000 --outage 30 --strategy full --html storm.html",
    "haclient simulate --park outage --set park_timeout=10 --set detection=0.5",
)


@click.command(cls=Command, option_groups=_OPTION_GROUPS, epilog=_EXAMPLES)
@click.option("--clients", type=click.IntRange(min=1), default=2000, show_default=True)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(list(STRATEGIES)),
    multiple=True,
    default=[Policy().backoff_strategy],
    show_default=True,
    help="The clients' backoff strategy; several are compared.",
)
@click.option(
    "--setup-rate",
    type=float,
    default=200.0,
    show_default=True,
    help="Connection setups a second that the primary manages.",
)
@click.option("--accept-rate", type=float, help="What it admits a second.  [default: the setup rate]")
@click.option("--outage", type=float, default=3.0, show_default=True, help="Seconds.")
@click.option(
    "--backlog", type=int, default=128, show_default=True, help="Connections that wait at the primary."
)
@click.option(
    "--when-full",
    type=click.Choice(get_args(WhenFull)),
    default="silent",
    show_default=True,
    help="A full backlog drops the SYN, as Linux does, or answers with a reset, as a load balancer does.",
)
@click.option("--dead-host", is_flag=True, help="The lost member's address answers nothing: no reset.")
@click.option(
    "--retry-after/--no-retry-after",
    default=None,
    help="Whether the primary sends a retry-after.  [default: every --strategy with and without]",
)
@click.option("--members", type=int, help="1 is an address that moves.  [default: 1, or 2 with --park]")
@click.option(
    "--park",
    "standby",
    type=click.Choice(get_args(Standby)),
    default="none",
    show_default=True,
    help="Members hold clients: never, during the outage, or since before it (warm).",
)
@click.option(
    "--set",
    "settings",
    type=Assignment(_WITH_OPTIONS),
    multiple=True,
    help="Anything else of the scenario, or an option of the client as in a URL: detection=0.5, "
    "fleet_known=true, max_retry_after=120.",
)
@click.option(
    "--json", "as_json", type=click.Path(dir_okay=False, allow_dash=True), help="Write the figures as JSON."
)
@click.option(
    "--plot", "png", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture, as PNG."
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that needs no network."
)
def simulate(
    *,
    strategies: Sequence[StrategyName],
    settings: Sequence[tuple[str, Any]],
    as_json: str | None,
    png: Path | None,
    html: Path | None,
    **given: Any,
) -> None:
    """Run a reconnect storm in virtual time, with the real client code.

    "best" is the best possible time until the last client is back, given the accept rate.
    """
    storms = _storms(strategies, {**given, **dict(settings)})
    need_for(png, html)
    with progress_bars() as bars:
        results = [_run(scenario, policy, bars) for scenario, policy in storms]
    rows = [result.figures() for result in results]
    print_results(rows, as_json, scenario=results[0].scenario)
    draw(results, rows, png, html)


def _storms(strategies: Sequence[StrategyName], given: Mapping[str, Any]) -> list[tuple[Scenario, Policy]]:
    """Each strategy, at a broker with ``retry-after`` and at one without where both are possible."""
    parking = given["standby"] != "none"
    chosen, fleet_known = given["retry_after"], given.get("fleet_known", False)
    known = {"members": 2 if parking else 1, "parking": parking}
    known |= {name: value for name, value in given.items() if value is not None}
    if chosen is not None:
        brokers = [chosen]
    else:
        brokers = [not fleet_known] if parking or fleet_known else [True, False]
    policy = Policy(**{name: value for name, value in known.items() if name in POLICY})
    scenarios = [scenario_of({**known, "retry_after": retry_after}) for retry_after in brokers]
    return [
        (scenario, replace(policy, backoff_strategy=name)) for name in strategies for scenario in scenarios
    ]


def scenario_of(values: Mapping[str, Any]) -> Scenario:
    """Return a scenario from option values; values of other options are ignored.

    :raises click.UsageError: if the values contradict each other.
    """
    try:
        return Scenario(**{name: value for name, value in values.items() if name in SCENARIO})
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _run(scenario: Scenario, policy: Policy, bars: Progress) -> Result:
    task = bars.add_task(name_of(policy, scenario), total=scenario.clients)
    result = let_happen(scenario, policy, progress=lambda back, _: bars.update(task, completed=back))
    bars.update(task, completed=len(result.back))
    return result


def need_for(png: Path | None, html: Path | None) -> None:
    """:raises UnusableError: when something is missing that these pictures need."""
    try:
        plot.need_for(png, html)
    except plot.NoPlotsError as error:
        raise UnusableError(str(error)) from error


def progress_bars() -> Progress:
    """Bars on standard error, where that is a terminal."""
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


def print_results(
    rows: Sequence[Mapping[str, Any]],
    as_json: str | None,
    *,
    columns: Iterable[str] = COLUMNS,
    scenario: Scenario | None = None,
) -> None:
    """Write the figures as JSON if that is asked for, and print a table unless they went to standard output.

    :param scenario: for the title.
    """
    if as_json is not None:
        with click.open_file(as_json, "w", encoding="utf-8") as file:
            file.write(json.dumps(rows, indent=2) + "\n")
    if as_json != "-":
        Console().print(_table(rows, tuple(columns), scenario))


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], scenario: Scenario | None) -> Table:
    title = None if scenario is None else f"{scenario.clients:,} clients, best possible {scenario.ideal:g} s"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for name in columns:
        table.add_column(COLUMNS.get(name, name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row["name"]), *(_cell(row[name]) for name in columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.{1 if value >= _LARGE else 2}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def draw(
    results: Sequence[Result], rows: Sequence[Mapping[str, object]], png: Path | None, html: Path | None
) -> None:
    """Write the pictures that are asked for."""
    series = [arrivals_of(result) for result in results]
    one = results[0].scenario
    title = f"{one.clients:,} clients, {one.setup_rate:g} connection setups a second, {one.outage:g} s outage"
    if png is not None:
        plot.write_png(series, png, title=title)
    if html is not None:
        plot.write_html(series, rows, html, title=title)
