"""``haclient members``: the members of a cluster, with their roles and failures."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import click
from rich.measure import Measurement
from rich.table import Table

from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.formatting import WIDE, wide_console
from haclient.cli.identity import processes
from haclient.cli.probe import ClusterProbe, Finding
from haclient.cli.remarks import Remark, remarks
from haclient.cli.target import OVERRIDES, URL_ARGUMENT, Target, target_of
from haclient.command_line.signals import run
from haclient.discovery.attempt_summary import endpoint_text
from haclient.printable.text import printable

_INDENT = "    "
_HIDDEN = {"endpoint", "sole_connection"}
# Columns; a narrower terminal breaks lines by itself.
_NARROWEST = 20
_EXAMPLES = examples(
    "haclient members amqp://broker-a,broker-b",
    "haclient members amqps://user:password@broker-a,broker-b -o tls_ca=ca.pem",
    "until haclient members -q --timeout 1; do sleep 1; done",
    "haclient members --json | jq -r .primary",
)


@click.command(epilog=_EXAMPLES)
@URL_ARGUMENT
@OVERRIDES
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.05, max=3600),
    default=1.2,
    show_default=True,
    help="Seconds for all answers together.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only the exit code says the result.")
def members(
    url: str | None, overrides: Sequence[tuple[str, str]], timeout: float, *, as_json: bool, quiet: bool
) -> None:
    """Probe all members of a cluster at the same time, and print their roles.

    Probed are the members in URL (or in the variable HACLIENT_URL), members that another one names, and
    targets of redirects.  Prints for each whether it answers, its role and generation, TLS, SASL mechanism
    and product.  Also the times to the TCP connection and the AMQP Open, and the reason if it is not usable.

    Then prints problems of the whole cluster: several brokers that claim to be the primary, one broker under
    several addresses, a router.  To distinguish the first two may take as long again.

    Exits with 0 if one of them is the primary, and with 1 if none is.
    """
    target = target_of(url, overrides)
    began = time.monotonic()
    with client_errors():
        found, about_cluster = run(_probe(target, timeout))
    seconds = time.monotonic() - began
    if as_json and not quiet:
        click.echo(json.dumps(_document(target, found, about_cluster, seconds), indent=2))
    elif not quiet:
        _show(found, about_cluster, seconds)
    if not any(each.primary for each in found):
        raise click.exceptions.Exit(LESS)


async def _probe(target: Target, timeout: float) -> tuple[tuple[Finding, ...], tuple[Remark, ...]]:
    core = target.core()
    try:
        probe = ClusterProbe(core.shared())
        found = await probe.run(timeout)
        brokers = await processes(found, core.shared(), timeout)
        return found, remarks(found, brokers, probe.not_asked)
    finally:
        await core.close()


def _document(
    target: Target, found: Sequence[Finding], about_cluster: Sequence[Remark], seconds: float
) -> dict[str, Any]:
    primary = next((each for each in found if each.primary), None)
    return {
        "url": str(target.url),
        "primary": None if primary is None else str(primary.endpoint),
        "generation": None if primary is None else primary.generation,
        "cluster": None if primary is None else primary.cluster,
        "seconds": round(seconds, 6),
        "members": [_facts(each) for each in found],
        "remarks": [
            {
                "kind": each.kind.value,
                "warning": each.is_warning,
                "endpoints": list(map(str, each.endpoints)),
                "text": each.text,
            }
            for each in about_cluster
        ],
    }


def _facts(finding: Finding) -> dict[str, Any]:
    endpoint = finding.endpoint
    facts = {each.name: getattr(finding, each.name) for each in fields(finding) if each.name not in _HIDDEN}
    where = {"endpoint": str(endpoint), "name": endpoint.tls_name, "origin": endpoint.origin.value}
    return {**where, **{name: _rounded(value) for name, value in facts.items()}}


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _show(found: Sequence[Finding], about_cluster: Sequence[Remark], seconds: float) -> None:
    """Print a row for each member if that fits, else two lines."""
    console = wide_console()
    table = _table(found)
    if Measurement.get(console, console.options.update(width=WIDE), table).maximum <= console.width:
        console.print(table)
    else:
        for each in found:
            for line in _lines(each, console.width):
                console.print(line, style=_style(each))
    console.print(_verdict(found, seconds))
    for remark in about_cluster:
        word, style = ("warning", "bold red") if remark.is_warning else ("note", None)
        for line in _filled(f"{word}: {printable(remark.text)}", console.width, ""):
            console.print(line, style=style)


def _style(finding: Finding) -> str | None:
    return None if finding.primary else "dim" if finding.reachable else "red"


def _table(found: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("member", "answers", "role", "generation", "TCP", "Open", "TLS", "SASL", "product"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why not", no_wrap=True)
    for each in found:
        table.add_row(*_row(each), style=_style(each))
    return table


def _lines(finding: Finding, width: int) -> Iterator[str]:
    """Yield a member's name and state, then its failure and other facts, wrapped to the width."""
    member, answers, role, generation, tcp, opened, tls, mechanism, product, why = _row(finding)
    state = [role if role != "-" else "answers" if answers == "yes" else "no answer"]
    times = [f"{name} {time}" for name, time in (("TCP", tcp), ("Open", opened)) if time != "-"]
    more = [f"generation {generation}"] if generation != "-" else []
    yield from _filled(f"{member}: {', '.join(state + more)}", width, "")
    facts = ", ".join((*times, *(fact for fact in (tls, mechanism, product) if fact != "-")))
    rest = "; ".join(part for part in (why, facts) if part)
    if rest:
        yield from _filled(rest, width, _INDENT)


def _filled(text: str, width: int, indent: str) -> list[str]:
    """Wrap text to this width; a part without a space, such as a URL, is not broken."""
    return textwrap.wrap(
        text,
        max(width, _NARROWEST),
        initial_indent=indent,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(finding: Finding) -> tuple[str, ...]:
    product = " ".join(part for part in (finding.product, finding.version) if part)
    cells = (
        endpoint_text(finding.endpoint),
        "yes" if finding.reachable else "no",
        finding.role or ("primary" if finding.primary else "-"),
        "-" if finding.generation is None else str(finding.generation),
        _milliseconds(finding.tcp_seconds),
        _milliseconds(finding.open_seconds),
        finding.tls or "-",
        finding.mechanism or "-",
        product or "-",
        finding.why or finding.kind or "",
    )
    return tuple(map(printable, cells))


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _verdict(found: Sequence[Finding], seconds: float) -> str:
    primaries = ", ".join(endpoint_text(each.endpoint) for each in found if each.primary)
    return f"primary: {printable(primaries or 'none')} ({len(found)} asked in {seconds:.2f} s)"
