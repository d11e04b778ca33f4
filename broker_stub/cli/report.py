"""Formats a member's status for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haclient.printable.text import printable


def report(facts: dict[str, Any]) -> str:
    """Format a member's status in several lines; the first has name, address, role and generation."""
    head = f"{facts['name']} ({facts['address']}): {facts['role']}, generation {facts['generation']}"
    lines = [*_cluster(facts), *_content(facts)]
    return "\n".join(map(printable, [head, *(f"  {name:<9} {text}" for name, text in lines)]))


def _cluster(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if facts["primary"]:
        yield "primary", facts["primary"]
    replication = facts.get("replication")
    if replication is None:
        yield "store", "memory, not replicated"
        return
    yield "claim", f"generation {_or_none(replication['number'])}, pending {_or_none(replication['pending'])}"
    yield "cluster", replication["cluster"] or "none yet"
    for replica in replication["replicas"]:
        yield "replica", f"{replica['name']}: {replica['phase']}, lag {replica['lag']}"
        for queue, reason in replica.get("set_aside", {}).items():
            yield "not copied", f"{queue} to {replica['name']}: {reason}"
    yield "store", replication["store"]
    if (disk := replication.get("disk")) is not None and disk["text"]:
        yield "disk", f"{disk['level']}: {disk['text']}"
    if replication["damage"]:
        yield "corrupt", replication["damage"]
    yield "arbiter", replication["arbiter"]


def _content(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "members", ", ".join(facts["members"]) or "none known"
    yield "clients", str(facts["connections"])
    admission = facts.get("entrance")
    if admission is not None:
        yield "admission", _admission(admission)
    yield from _site(facts.get("site", {}))
    # A member of version 0.1.0 lists its queues instead.
    count = facts["queue_count"] if "queue_count" in facts else len(facts["queues"])
    yield "queues", f"{count}, with temporary ones"


def _site(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source = facts.get("source")
    if source is not None:
        lag = f"{source['lag_events']} events, the oldest {source['lag_seconds']:.3g} s old"
        yield "events", f"last sequence {source['last_sequence']}, lag {lag}"
    for link in facts.get("links", ()):
        yield "link", link_line(link)


def link_line(facts: dict[str, Any]) -> str:
    """Format a link's state and counts in one line."""
    last = ", ".join(str(number) for number in facts["last_sequence"].values()) or "none"
    counts = ("applied", "duplicates", "gaps", "parked", "malformed")
    done = ", ".join(f"{facts[name]} {name}" for name in counts)
    why = f" ({facts['error']})" if facts["error"] and facts["state"] != "connected" else ""
    return f"{facts['name']} from {facts['from']}: {facts['state']}{why}, last sequence {last}; {done}"


def _admission(facts: dict[str, Any]) -> str:
    rate = "no limit" if facts["rate"] is None else f"{facts['rate']:.4g} a second"
    counts = ("admitted", "refused", "redirected")
    outcomes = ", ".join(f"{facts[name]} {name}" for name in counts)
    return f"{rate}; {outcomes}; {facts['parked_now']} parked and {facts['half_open']} half-open now"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
