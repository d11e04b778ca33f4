"""The output of ``pair``: JSON lines for programs, lines for logs, and a live table for people."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

import click

from broker_stub.cli.options import without_secrets
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterEvent, describe
from haclient.printable.lines import echo_line
from haclient.printable.text import printable

if TYPE_CHECKING:  # a pair without a terminal would otherwise import twice as much
    from rich.console import Group
    from rich.table import Table

_EVENTS_SHOWN = 12


class Screen(Protocol):
    """The output of the command."""

    def event(self, event: LocalClusterEvent) -> None:
        """Show an event."""

    def ready(self, pair: LocalCluster) -> None:
        """Show that the cluster serves."""

    def close(self) -> None:
        """End the output."""


class JsonLines:
    """Output for programs: one JSON object per line."""

    def event(self, event: LocalClusterEvent) -> None:
        """Print the event."""
        facts = asdict(event)
        click.echo(json.dumps({"event": facts.pop("kind"), **facts}))

    def ready(self, pair: LocalCluster) -> None:
        """Print the facts that a client and an admin need."""
        facts: dict[str, object] = {
            "event": "ready",
            "url": pair.url,
            "password_file": str(pair.password_file),
        }
        where = {"store": pair.store, "arbiter": without_secrets(pair.arbiter)}
        if pair.certificate is not None:
            where["tls_ca"] = str(pair.certificate.ca)
        click.echo(json.dumps({**facts, **where, "members": describe(pair)}))

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """Output for logs: one line per event."""

    def event(self, event: LocalClusterEvent) -> None:
        """Print the event."""
        echo_line(_line(event))

    def ready(self, pair: LocalCluster) -> None:
        """Print the URL and the information for managing the cluster."""
        for line in _heads(pair):
            echo_line(line)

    def close(self) -> None:
        """Do nothing."""


class LiveTable:
    """Output for people: a live table of the members and the latest events."""

    def __init__(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - only where somebody looks

        self._events: list[LocalClusterEvent] = []
        self._pair: LocalCluster | None = None
        self._live = Live(get_renderable=self._render, refresh_per_second=4)
        self._live.start()

    def event(self, event: LocalClusterEvent) -> None:
        """Keep the event for the next refresh."""
        self._events = [*self._events, event][-_EVENTS_SHOWN:]

    def ready(self, pair: LocalCluster) -> None:
        """Start to show the table."""
        self._pair = pair

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._live.stop()

    def _render(self) -> Group:
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        lines = [Text(_line(event), style="dim") for event in self._events]
        if self._pair is None:
            return Group("starting...", *lines)
        heads = (Text(line) for line in _heads(self._pair))
        return Group(*heads, _table(self._pair), *lines)


def _heads(pair: LocalCluster) -> tuple[str, ...]:
    kept = pair.options.memory or pair.options.store is not None
    return (
        f"cluster URL: {pair.url}",
        *_to_paste(pair),
        f"cluster-admin's password: {pair.password_file}",
        f"store: {pair.store}{'' if kept else ' (removed at the end)'}",
        f"arbiter: {without_secrets(pair.arbiter)}",
    )


def _to_paste(pair: LocalCluster) -> tuple[str, ...]:
    """Return code samples that connect a client, with ``haclient`` and with proton alone."""
    if pair.certificate is None:
        return ()
    urls = ", ".join(f'"{member.address}"' for member in pair.members)
    return (
        f'  haclient: haclient.connect("{pair.url}")',
        "  proton:   domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)",
        f'            domain.set_trusted_ca_db("{pair.certificate.ca}")',
        "            domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)",
        f"            container.connect(urls=[{urls}], ssl_domain=domain)",
    )


def _table(pair: LocalCluster) -> Table:
    from rich.table import Table  # noqa: PLC0415

    columns = ("name", "address", "state", "generation", "connections", "pid")
    table = Table(*columns)
    for member in describe(pair):
        cells = ("" if member[column] is None else printable(str(member[column])) for column in columns)
        table.add_row(*cells, style="bold green" if member["state"] == "primary" else "")
    return table


def _line(event: LocalClusterEvent) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(event.at))
    return printable(f"{when} {event.member} {event.kind}: {event.detail}")
