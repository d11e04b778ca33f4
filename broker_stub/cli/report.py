"""A member's status for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def report(facts: dict[str, Any]) -> str:
    """What a member said of itself, in some lines; the first has name, address, role and generation."""
    head = f"{facts['name']} ({facts['address']}): {facts['role']}, generation {facts['generation']}"
    lines = [*_cluster(facts), *_content(facts)]
    return "\n".join([head, *(f"  {name:<9} {text}" for name, text in lines)])


def _cluster(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if facts["primary"]:
        yield "primary", facts["primary"]
    replication = facts.get("replication")
    if replication is None:
        yield "store", "memory, not replicated"
        return
    yield "number", f"{_or_none(replication['number'])}, pending {_or_none(replication['pending'])}"
    for replica in replication["replicas"]:
        yield "replica", f"{replica['name']}: {replica['phase']}, lag {replica['lag']}"
    yield "store", replication["store"]
    if replication["damage"]:
        yield "damage", replication["damage"]
    yield "arbiter", replication["arbiter"]


def _content(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "members", ", ".join(facts["members"]) or "none known"
    yield "clients", str(facts["connections"])
    entrance = facts.get("entrance")
    if entrance is not None:
        yield "entrance", _entrance(entrance)
    for queue in facts["queues"]:
        if not queue["temporary"]:
            yield "queue", f"{queue['name']}: {queue['depth']} messages, replicate {queue['replicate']}"


def _entrance(facts: dict[str, Any]) -> str:
    rate = "no limit" if facts["rate"] is None else f"{facts['rate']:.4g} a second"
    counts = ("admitted", "refused", "redirected")
    told = ", ".join(f"{facts[name]} {name}" for name in counts)
    return f"{rate}; {told}; {facts['parked_now']} parked and {facts['half_open']} half-open now"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
