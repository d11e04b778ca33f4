"""The decisions on generations: the rules of ``generation``, one function each. No I/O."""

from __future__ import annotations

from dataclasses import replace

from broker_stub.election.generation_steps import (
    ArbiterRecord,
    GenerationState,
    Pending,
    PrimaryIdentity,
    Refusal,
)


def may_promote(state: GenerationState, record: ArbiterRecord) -> Refusal | None:
    """Return the reason why this member is not eligible (rules 1 and 5), or ``None`` if it is."""
    if is_record(state.pending, record):
        return None
    wrong = other_cluster(state, record)
    if wrong is not None:
        return wrong
    if state.generation is not None and state.generation > record.generation:
        return Refusal(
            f"the arbiter is at generation {record.generation} and this member has generation"
            f" {state.generation}: the arbiter was restored from an older copy; put its newest record back"
        )
    if state.generation != record.generation:
        own = "no generation" if state.generation is None else f"generation {state.generation}"
        return Refusal(
            f"the arbiter is at generation {record.generation} and this member has {own}:"
            " messages that were settled since may be missing here"
        )
    if state.cluster != record.cluster:
        return Refusal(_UNNAMED if record.cluster else _ARBITER_LOST.format(state.cluster))
    if state.cluster and state.claim != record.claim:
        return Refusal(
            f"the arbiter's generation {record.generation} was claimed by another primary than this store's:"
            " one of the two was restored from a copy"
        )
    return None


_UNNAMED = (
    "this store belongs to no cluster yet, and the arbiter has one: start the member beside the primary,"
    " so that it catches up"
)
_ARBITER_LOST = "this store belongs to cluster {}, and the arbiter's record to none: was it replaced?"


def other_cluster(state: GenerationState, record: ArbiterRecord) -> Refusal | None:
    """Return a refusal if the arbiter belongs to another cluster (rule 5), else ``None``."""
    if not state.cluster or not record.cluster or state.cluster == record.cluster:
        return None
    return Refusal(
        f"this store belongs to cluster {state.cluster} and the arbiter to cluster {record.cluster}:"
        " give the member its own cluster's --arbiter, or an empty --store"
    )


def may_follow(
    state: GenerationState, primary: PrimaryIdentity, *, arbiter: ArbiterRecord | None, empty: bool
) -> Refusal | None:
    """Return the reason why this member must not erase its state and catch up from a primary (rules 4 and 5).

    ``None`` means that it may.

    :param arbiter: the record of this member's own arbiter; ``None`` if it cannot be read.
    :param empty: true if the store has no queue and no exchange.
    """
    if state.cluster and state.cluster != primary.cluster:
        return Refusal(
            f"this store belongs to cluster {state.cluster} and the primary to cluster {primary.cluster}:"
            " nothing was erased; give the member its own cluster's list (--member or --broker-url),"
            " or an empty --store"
        )
    if not state.cluster:
        refusal = _may_adopt(state, primary, arbiter, empty=empty)
        if refusal is not None:
            return refusal
    known = known_generation(state)
    if primary.generation >= known:
        return None
    return Refusal(
        f"the primary is of generation {primary.generation} and this member knows of generation {known}"
    )


def _may_adopt(
    state: GenerationState, primary: PrimaryIdentity, arbiter: ArbiterRecord | None, *, empty: bool
) -> Refusal | None:
    """Apply rule 5 to a store without a cluster."""
    if arbiter is None:
        return Refusal(
            f"this store belongs to no cluster yet, and the arbiter, which must confirm {primary.cluster},"
            " cannot be read now"
        )
    if arbiter.cluster != primary.cluster:
        return Refusal(
            f"the primary is of cluster {primary.cluster} and the arbiter of cluster"
            f" {arbiter.cluster or 'none'}: the list (--member or --broker-url) or --arbiter is another"
            " cluster's"
        )
    if empty or state.generation == arbiter.origin:
        return None
    own = "no generation" if state.generation is None else f"generation {state.generation}"
    return Refusal(
        f"this store is of a version that knew no cluster UUID and has {own}, not {arbiter.origin}, at which"
        f" cluster {primary.cluster} got its UUID: nothing was erased; if the member belongs there, move its"
        " store away, and it catches up from an empty one"
    )


def superseded(held: ArbiterRecord, asked: Pending | None, read: ArbiterRecord) -> str | None:
    """Return the reason to step down after a primary has read the arbiter (rule 6), or ``None``.

    :param held: the record that it won last.
    :param asked: the record that it is asking for, if any.
    """
    if read.cluster != held.cluster or read.generation < held.generation:
        return None
    if read == held or is_record(asked, read):
        return None
    return (
        f"another member was made primary: the arbiter is at generation {read.generation},"
        f" this primary's was {held.generation}"
    )


def must_shrink(ready: frozenset[str], dropped: str) -> bool:
    """Return whether a new generation is needed before settling anything without this replica (rule 2)."""
    return dropped in ready


def propose(record: ArbiterRecord | int, claim: str) -> Pending:
    """Return the next generation to ask the arbiter for."""
    return Pending((record if isinstance(record, int) else record.generation) + 1, claim)


def adopt(state: GenerationState, record: ArbiterRecord) -> GenerationState:
    """Take the arbiter's record as own state, if this member is eligible by its pending."""
    return holding(record) if is_record(state.pending, record) else state


def note_pending(state: GenerationState, pending: Pending) -> GenerationState:
    """Replace the noted pending."""
    return replace(state, pending=pending)


def claimed(record: ArbiterRecord) -> GenerationState:
    """Return the state after winning the compare-and-set: the record is this member's."""
    return holding(record)


def hand_over(state: GenerationState, record: ArbiterRecord) -> GenerationState:
    """Return the state of a ready replica that receives a generation; a late message never lowers it."""
    if state.generation is not None and state.generation > record.generation:
        return state
    later = state.pending if state.pending and state.pending.generation > record.generation else None
    return replace(holding(record), pending=later)


def erase(state: GenerationState, cluster: str) -> GenerationState:
    """Return the state before catch-up discards anything: not eligible, with content of that cluster."""
    return replace(state, generation=None, pending=None, claim="", cluster=cluster)


def holding(record: ArbiterRecord) -> GenerationState:
    """Return the state of a member that has every message settled up to a record."""
    return GenerationState(record.generation, None, record.claim, record.cluster)


def known_generation(state: GenerationState) -> int:
    """Return the highest generation that a member has or has noted."""
    return max(state.generation or 0, state.pending.generation if state.pending else 0)


def is_record(pending: Pending | None, record: ArbiterRecord) -> bool:
    """Return whether the arbiter granted a pending; a claim is never used twice."""
    return pending is not None and (pending.generation, pending.claim) == (record.generation, record.claim)
