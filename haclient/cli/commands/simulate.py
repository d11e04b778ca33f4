"""``haclient simulate``: a reconnect storm in virtual time, one row a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from haclient.analysis.io.session import spark_session
from haclient.cli.exit_codes import LESS, examples
from haclient.cli.options import UnusableError, check_reachable, plain_errors
from haclient.cli.spark import stopped_after
from haclient.command_line.groups import Command
from haclient.retry.policy import Policy, Standby
from haclient.retry.strategies import STRATEGIES
from haclient.simulation import arrivals, cases, plot, sweep
from haclient.simulation.grid import report
from haclient.simulation.grid.brokers import BROKERS
from haclient.simulation.grid.cache import Cache
from haclient.simulation.grid.cells import Part, cells
from haclient.simulation.grid.known import compare
from haclient.simulation.grid.picture import write_picture
from haclient.simulation.grid.run import Judged, grid
from haclient.simulation.presets import PRESETS
from haclient.simulation.result import Result
from haclient.simulation.scenario import Passive, Scenario, WhenFull
from haclient.simulation.syn import SynRepeats

_COLUMNS = {
    "last": "last",
    "ratio": "last/best",
    "p50": "p50",
    "p99": "p99",
    "peak_per_second": "peak/s",
    "attempts_per_client": "attempts",
    "syns_at_host": "SYN/s",
    "wasted_handshakes": "wasted",
}
_WIDE = 200  # characters; a file has room
_LARGE = 100  # from here on one decimal place is enough
_SCENARIO = {field.name for field in fields(Scenario)}
_AXES = sweep.PARAMETERS | {"kind"}  # kind: of --grid
_POLICY = {field.name for field in fields(Policy)}


class Axis(click.ParamType[tuple[str, tuple[Any, ...]]]):
    """A parameter and its values."""

    name = "key=a,b,c"

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
        if key not in _AXES or not texts:
            self.fail(f"{value!r} is not like setup_rate=100,200; there are {', '.join(sorted(_AXES))}")
        return key, tuple(_read(text) for text in texts.split(","))


_OPTION_GROUPS = {
    "Clients": ("clients", "strategy", "preset", "detection", "max-retry-after", "backoff-max", "seed"),
    "Brokers": (
        "setup-rate", "accept-rate", "outage", "backlog", "when-full", "dead-host", "syn-repeats",
        "retry-after", "fleet-known", "members", "passive", "redirecting", "refusal-cost",
        "handshake-round-trips", "authentication", "broker",
    ),
    "Parking": ("park", "park-timeout"),
    "Many storms": ("sweep", "grid", "check", "jobs", "cache", "spark", "master"),
    "Output": ("json", "plot", "html"),
}  # fmt: skip
_EXAMPLES = examples(
    "haclient simulate                                       # our client and others",
    "haclient simulate --clients 20000 --outage 30 --strategy full --html storm.html",
    "haclient simulate --sweep setup_rate=100,200,400 --sweep client=full,kafka",
    "haclient simulate --grid short --check",
)


@click.command(cls=Command, option_groups=_OPTION_GROUPS, epilog=_EXAMPLES)
@click.option("--clients", type=click.IntRange(min=1), default=2000, show_default=True)
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
    "--detection",
    type=float,
    default=0.1,
    show_default=True,
    help="Clients notice the loss within so many seconds.",
)
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
    "--syn-repeats",
    type=click.Choice(get_args(SynRepeats)),
    default="linear",
    show_default=True,
    help="How the kernel repeats a SYN: Linux from 6.5 on, or exponential as before.",
)
@click.option(
    "--retry-after/--no-retry-after",
    default=None,
    help="Whether the primary sends a retry-after.  [default: every --strategy with and without]",
)
@click.option(
    "--fleet-known", is_flag=True, help="The lost primary announced its fleet; without --retry-after."
)
@click.option(
    "--park",
    "standby",
    type=click.Choice(get_args(Standby)),
    default="none",
    show_default=True,
    help="Members hold clients: never, during the outage, or since before it (warm).",
)
@click.option(
    "--strategy", "strategies", type=click.Choice(list(STRATEGIES)), multiple=True, help="Of haclient."
)
@click.option("--preset", "presets", type=click.Choice(list(PRESETS)), multiple=True, help="Another client.")
@click.option("--members", type=int, help="1 is an address that moves.  [default: 1, or 2 with --park]")
@click.option(
    "--passive",
    type=click.Choice(get_args(Passive)),
    default="close",
    show_default=True,
    help="Passive members close the connection, or do not listen.",
)
@click.option("--redirecting", type=int, default=0, show_default=True, help="Passive members that redirect.")
@click.option(
    "--max-retry-after",
    type=float,
    default=Policy().max_retry_after,
    show_default=True,
    help="Option of the client.",
)
@click.option(
    "--backoff-max", type=float, default=Policy().backoff_max, show_default=True, help="Option of the client."
)
@click.option(
    "--park-timeout",
    type=float,
    default=Policy().park_timeout,
    show_default=True,
    help="Option of the client.",
)
@click.option(
    "--refusal-cost",
    type=float,
    default=0.0,
    show_default=True,
    help="Work for a refusal with a retry-after, as a part of that for a connection setup.",
)
@click.option(
    "--handshake-round-trips",
    type=int,
    default=1,
    show_default=True,
    help="Of a connection setup: 4 with SASL, 5 or 6 with TLS.",
)
@click.option(
    "--authentication",
    type=float,
    default=0.0,
    show_default=True,
    help="Seconds that a setup waits for another service.",
)
@click.option(
    "--broker",
    type=click.Choice(list(BROKERS)),
    help="The setup rate, backlog and passive members of a broker that was measured.",
)
@click.option(
    "--grid",
    is_flag=False,
    flag_value="whole",
    type=click.Choice(get_args(Part)),
    help="Many storms, judged: 5 to 2,000 clients, outages of 0.3 to 300 s, three kinds, one address and "
    "three; --sweep clients=20 --sweep kind=reset chooses others.  short: the longer the outage, the fewer "
    "clients; large: 20,000 clients.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Compare --grid with what is known of the default options: exit with 1 when a cell does not hold "
    "that should, or holds that is known not to.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes of --grid.  [default: all processors]")
@click.option(
    "--cache",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where --grid keeps results, to go on there; it computes again what a change of the code concerns.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--sweep", "axes", type=Axis(), multiple=True, help="Vary a parameter; several give every combination."
)
@click.option("--spark", is_flag=True, help="Spread a sweep over Spark.")
@click.option("--master", help="Spark master; local[*] without it.")
@click.option(
    "--json", "as_json", type=click.Path(dir_okay=False, allow_dash=True), help="Write the figures as JSON."
)
@click.option(
    "--plot",
    "png",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a PNG (of a grid also an SVG).",
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that needs no network."
)
def simulate(**given: Any) -> None:
    """Run a reconnect storm in virtual time, with the real client code.

    "best" is the best possible time until the last client is back, given the accept rate.

    Without --strategy, --preset and --park it compares all of them: haclient with retry-after and, like the
    others, with an ordinary broker.
    """
    try:
        _check(given)
        if given["grid"]:
            _grid(given)
        elif given["axes"]:
            _sweep(given)
        else:
            _compare(given)
    except plot.NoPlotsError as error:
        raise UnusableError(str(error)) from error


def _check(given: Mapping[str, Any]) -> None:
    drawn = given["png"] or given["html"]
    if given["grid"] is None and (given["jobs"] or given["cache"] or given["check"]):
        raise click.UsageError("--jobs, --cache and --check go with --grid")
    if given["grid"]:
        _check_grid(given)
    elif given["axes"] and drawn:
        raise click.UsageError("--sweep gives figures, and no plot")
    if not given["axes"] and (given["spark"] or given["master"]):
        raise click.UsageError("--spark and --master go with --sweep")
    if given["axes"] and not given["grid"] and len([*given["strategies"], *given["presets"]]) > 1:
        raise click.UsageError(
            "--sweep goes with one strategy or preset; vary them with --sweep client=full,kafka"
        )
    for module, wanted in (("matplotlib", given["png"]), ("markupsafe", given["html"])):
        if wanted:
            plot.need(module)


def _check_grid(given: Mapping[str, Any]) -> None:
    if given["html"] or given["spark"] or given["presets"] or given["standby"] != "none":
        raise click.UsageError(
            "--grid has all presets, at an ordinary broker; --html, --spark and --park do not go with it"
        )


def _point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as parameters of a scenario and a policy."""
    known = {name: value for name, value in given.items() if name in sweep.PARAMETERS and value is not None}
    source = click.get_current_context().get_parameter_source
    measured = BROKERS[given["broker"]] if given["broker"] else {}
    known |= {
        name: value for name, value in measured.items() if source(name) is not ParameterSource.COMMANDLINE
    }
    parking = given["standby"] != "none"
    if given["fleet_known"]:
        known = {"retry_after": False, **known}
    return {"members": 2 if parking else 1, **known, "parking": parking}


def _cases(given: Mapping[str, Any]) -> Sequence[cases.Case]:
    point = _point(given)
    try:
        scenario = Scenario(**{name: value for name, value in point.items() if name in _SCENARIO})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    policy = Policy(**{name: value for name, value in point.items() if name in _POLICY})
    strategies, presets = given["strategies"], given["presets"]
    plain = given["standby"] == "none" and given["retry_after"] is None and not scenario.fleet_known
    if not strategies and not presets and plain:
        return cases.comparison(scenario, policy)
    if not presets:
        strategies = strategies or (policy.backoff_strategy,)
    both = given["retry_after"] is None and not scenario.parking and not scenario.fleet_known
    brokers = (scenario, replace(scenario, retry_after=False)) if both else (scenario,)
    return (
        *(cases.strategy(name, broker, policy) for name in strategies for broker in brokers),
        *(cases.preset(name, scenario) for name in presets),
    )


def _compare(given: Mapping[str, Any]) -> None:
    chosen = _cases(given)
    with _progress() as bar:
        results = [_run(case, bar) for case in chosen]
    rows = [result.figures() for result in results]
    _print_results(rows, given["as_json"], tuple(_COLUMNS), chosen[0].scenario)
    _draw(results, rows, given)


def _run(case: cases.Case, bar: Progress) -> Result:
    task = bar.add_task(case.name, total=case.scenario.clients)
    result = case.run(lambda back, _: bar.update(task, completed=back))
    bar.update(task, completed=len(result.back))
    return result


def _sweep(given: Mapping[str, Any]) -> None:
    axes = dict(given["axes"])
    chosen = [*given["strategies"], *given["presets"], Policy().backoff_strategy][0]
    try:
        points = sweep.points({"client": chosen, **_point(given)}, axes)
        for point in points:
            sweep.case(point)
    except (TypeError, ValueError, KeyError) as error:
        raise click.UsageError(f"--sweep: {error}") from error
    rows = _on_spark(points, given["master"]) if given["spark"] else _here(points)
    _print_results(rows, given["as_json"], (*axes, *_COLUMNS), None)


_OF_CELLS = {"clients", "outage", "members", "when_full", "dead_host", "retry_after", "parking", "seed"}


def _grid(given: Mapping[str, Any]) -> None:
    point = _point(given)
    base = {name: value for name, value in point.items() if name in _SCENARIO - _OF_CELLS}
    policy = Policy(**{name: value for name, value in point.items() if name in _POLICY - {"standby"}})
    chosen = given["strategies"]
    _check_is_of_defaults(given, policy, base)
    ours = {f"haclient, {name}": replace(policy, backoff_strategy=name) for name in chosen} or {
        "haclient": policy
    }
    try:
        every = cells(given["grid"], dict(given["axes"]), base)
        for cell in every:
            cell.scenario(1)
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--grid: {error}") from error
    with _progress() as bar, Cache(given["cache"]) as cache:
        task = bar.add_task("cells and policies", total=None)
        found = grid(
            every,
            ours,
            cache=cache,
            jobs=given["jobs"],
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if given["as_json"] is not None:
        with click.open_file(given["as_json"], "w", encoding="utf-8") as file:
            file.write(json.dumps([judged.as_json() for judged in found], indent=1) + "\n")
    if given["as_json"] != "-":
        for name in ours:
            _print_grid(found, name)
    if given["png"] is not None:
        first = next(iter(ours))
        write_picture(found, given["png"], title=report.summary(found, first), policy=first)
    if given["check"]:
        _compare_with_known(found, next(iter(ours)), to_stderr=given["as_json"] == "-")


def _check_is_of_defaults(given: Mapping[str, Any], policy: Policy, base: Mapping[str, Any]) -> None:
    if given["check"] and (given["strategies"] or policy != Policy() or Scenario(**base) != Scenario()):
        raise click.UsageError("--check is about the default options")


def _compare_with_known(found: Sequence[Judged], policy: str, *, to_stderr: bool) -> None:
    compared = compare(found, policy)
    for line in report.comparison(compared, policy):
        click.echo(line, err=to_stderr)
    if not compared.is_as_known:
        raise click.exceptions.Exit(LESS)


def _print_grid(found: Sequence[Judged], policy: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    table = Table(box=None, pad_edge=False)
    for name in report.COLUMNS:
        table.add_column(name, justify="left" if name in report.TEXTS else "right", no_wrap=True)
    for judged in found:
        table.add_row(*report.row(judged, policy))
    console.print(table)
    console.print(report.summary(found, policy))
    console.print(report.politeness(found, policy))


def _here(points: Sequence[sweep.Point]) -> list[dict[str, Any]]:
    with _progress() as bar:
        return list(bar.track(sweep.run(points), total=len(points), description="points"))


def _on_spark(points: Sequence[sweep.Point], master: str | None) -> list[dict[str, Any]]:
    with plain_errors():
        check_reachable(master)
        with stopped_after(lambda: spark_session(master)) as session:
            return sweep.run_on_spark(session, points)


def _print_results(
    rows: Sequence[Mapping[str, Any]], as_json: str | None, columns: Sequence[str], scenario: Scenario | None
) -> None:
    if as_json is not None:
        with click.open_file(as_json, "w", encoding="utf-8") as file:
            file.write(json.dumps(rows, indent=2) + "\n")
    if as_json != "-":
        Console().print(_table(rows, columns, scenario))


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], scenario: Scenario | None) -> Table:
    title = None if scenario is None else f"{scenario.clients:,} clients, best possible {scenario.ideal:g} s"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for name in columns:
        table.add_column(_COLUMNS.get(name, name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row["name"]), *(_cell(row[name]) for name in columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.{1 if value >= _LARGE else 2}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _draw(results: Sequence[Result], rows: Sequence[Mapping[str, object]], given: Mapping[str, Any]) -> None:
    series = [
        arrivals.Arrivals(result.name, result.back, result.attempts, result.scenario.setup_rate)
        for result in results
    ]
    rate, outage = given["setup_rate"], given["outage"]
    title = f"{given['clients']:,} clients, {rate:g} connection setups a second, {outage:g} s outage"
    if given["png"] is not None:
        plot.write_png(series, given["png"], title=title)
    if given["html"] is not None:
        plot.write_html(series, rows, given["html"], title=title)


def _progress() -> Progress:
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
