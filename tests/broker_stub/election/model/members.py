"""What one member is in the model.

A member that is down does nothing, and a member that looks for a primary may do nothing too: one state.
So a crash, a demotion and stepping down are one move, and so are the loss of a link and leaving it.
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
# What a primary sends in order: a pending to note, or its record.
Order = Pending | ArbiterRecord


class Link(NamedTuple):
    """A replica as its primary sees it; the replica may be gone without the primary knowing.

    :param gone: what consumers have accepted since it joined, and the replica has not acknowledged.
    :param aside: whether a queue is set aside: nothing of it is on its way, and so none of it is waited for.
    """

    becoming: BecomeReady
    acknowledged: int
    aside: bool = False
    gone: int = 0


class Serving(NamedTuple):
    """What a primary knows and forgets in a crash.

    :param held: the record it won.
    :param taken: messages of clients that it has not settled, in its store or not.
    :param leaving: messages that consumers have accepted and that are not confirmed, in its store or not.
    :param seen: what it has read of the arbiter and not looked at.
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
    """One member: two durable fields, then what a crash forgets.

    :param stored: its messages, a bit for each.
    :param inbox: orders that its primary sent and that it has not carried out.
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
        """Whether it has an attempt under way whose claim the arbiter may still get."""
        return self.promotion is not None or (self.serving is not None and self.serving.work is not None)

    @property
    def generations(self) -> frozenset[int]:
        """Those in which it settles, or may do so without another compare-and-set."""
        if self.promotion is not None:
            return frozenset((self.promotion.wanted.generation,))
        if self.serving is None:
            return frozenset()
        work = self.serving.work
        asked = {work.pending.generation} if work is not None and work.pending is not None else set()
        return frozenset({self.serving.held.generation} | asked)


def renamed(thing: Any, names: Mapping[str, str]) -> Any:
    """The same with other claims and other names of members, at any depth."""
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
    """The member in a world where member ``i`` is called ``order[i]``."""
    member = renamed(member, names)
    if member.serving is None:
        return member
    links: list[Link | None] = [None] * len(order)
    for old, new in enumerate(order):
        links[new] = member.serving.links[old]
    return member._replace(serving=member.serving._replace(links=tuple(links)))


def anonymous(member: Member) -> str:
    """A text that is the same for a member and for any permutation of it."""
    nobody = dict.fromkeys(NAMES, "?") | {f"claim of {name}": "claim" for name in NAMES}
    nobody |= {f"cluster of {name}": "cluster" for name in NAMES}
    bare = renamed(member, nobody)
    if bare.serving is None:
        return repr(bare)
    links = tuple(sorted(bare.serving.links, key=repr))
    return repr(bare._replace(serving=bare.serving._replace(links=links)))
