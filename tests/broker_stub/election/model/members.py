"""The state of one member in the model.

A member that is down does nothing, and a member that looks for a primary may do nothing too: one state.
So a crash, a demotion and stepping down are one move, and so are losing a link and leaving it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_stub.election.generation import (
    ArbiterRecord,
    BecomeReady,
    GenerationState,
    Pending,
    Promotion,
    ShrinkInSync,
)

NAMES = "ABC"
# A command of a primary, sent in order: a pending claim to note, or its record.
Order = Pending | ArbiterRecord


class Link(NamedTuple):
    """A replica as its primary sees it; the replica may be gone without the primary knowing.

    :param gone: dequeues since it joined that the replica has not acknowledged.
    :param aside: True if a queue is set aside: none of it is in transit, and so none is waited for.
    """

    becoming: BecomeReady
    acknowledged: int
    aside: bool = False
    gone: int = 0


class Serving(NamedTuple):
    """The state of a primary that a crash erases.

    :param held: the record it won.
    :param taken: messages of clients that it has not settled, in its store or not.
    :param leaving: messages that consumers have accepted and that are not confirmed, in its store or not.
    :param seen: the record that it has read from the arbiter and not examined.
    """

    held: ArbiterRecord
    links: tuple[Link | None, ...]
    taken: int = 0
    work: ShrinkInSync | None = None
    seen: ArbiterRecord | None = None
    leaving: int = 0

    @property
    def ready(self) -> frozenset[str]:
        return frozenset(link.becoming.replica for link in self.links if link and link.becoming.ready)


class Member(NamedTuple):
    """One member: two durable fields, then the fields that a crash erases.

    :param stored: its messages, a bit for each.
    :param inbox: commands of its primary that it has not executed.
    """

    durable: GenerationState = GenerationState()
    stored: int = 0
    follows: str | None = None
    inbox: tuple[Order, ...] = ()
    promotion: Promotion | None = None
    serving: Serving | None = None

    @property
    def crashed(self) -> Member:
        return Member(self.durable, self.stored)

    @property
    def attempts(self) -> bool:
        """Return whether the arbiter may still get the claim of an attempt under way."""
        return self.promotion is not None or (self.serving is not None and self.serving.work is not None)

    @property
    def generations(self) -> frozenset[int]:
        """Return the generations in which it settles, or may settle without another compare-and-set."""
        if self.promotion is not None:
            return frozenset((self.promotion.wanted.generation,))
        if self.serving is None:
            return frozenset()
        work = self.serving.work
        asked = {work.pending.generation} if work is not None and work.pending is not None else set()
        return frozenset({self.serving.held.generation} | asked)


def renamed(thing: Any, names: Mapping[str, str]) -> Any:
    """Return the same with other claims and other names of members, at any depth."""
    if thing is None or isinstance(thing, int):
        return thing
    if isinstance(thing, str):
        return names.get(thing, thing)
    if isinstance(thing, frozenset):
        return frozenset(renamed(each, names) for each in thing)
    if isinstance(thing, tuple):
        parts = [renamed(each, names) for each in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)
    return type(thing)(*[renamed(getattr(thing, name), names) for name in thing.__dataclass_fields__])


def permuted(member: Member, order: tuple[int, ...], names: Mapping[str, str]) -> Member:
    """Return the member in a world that calls member ``i`` by the name ``order[i]``."""
    member = renamed(member, names)
    if member.serving is None:
        return member
    links: list[Link | None] = [None] * len(order)
    for old, new in enumerate(order):
        links[new] = member.serving.links[old]
    return member._replace(serving=member.serving._replace(links=tuple(links)))


def anonymous(member: Member) -> str:
    """Return a text that is equal for a member and any permutation of it."""
    nobody = dict.fromkeys(NAMES, "?") | {f"claim of {name}": "claim" for name in NAMES}
    nobody |= {f"cluster of {name}": "cluster" for name in NAMES}
    bare = renamed(member, nobody)
    if bare.serving is None:
        return repr(bare)
    links = tuple(sorted(bare.serving.links, key=repr))
    return repr(bare._replace(serving=bare.serving._replace(links=links)))
