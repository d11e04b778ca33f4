"""The warning about possible losses by ``--force-primary``.

Force skips only rule 1 of ``generation``; it does not fence any member.
"""

from __future__ import annotations

from broker_stub.election.generation import ArbiterRecord, GenerationState, may_promote

_NOT_FENCED = (
    "No primary was fenced: one that still runs steps down when it reads the arbiter again, within seconds,"
    " and what it settles until then is lost."
)


def forced_loss(state: GenerationState, record: ArbiterRecord) -> str:
    """Return the warning for a forced promotion.

    :param state: the member's state before.
    :param record: the arbiter's record before.
    """
    own = "no generation" if state.generation is None else f"generation {state.generation}"
    before = f"The arbiter was at generation {record.generation} and this member had {own}: "
    return f"{before}{_missing(state, record)}. {_NOT_FENCED}"


def _missing(state: GenerationState, record: ArbiterRecord) -> str:
    if may_promote(state, record) is None:
        return "nothing that was settled is missing here"
    if state.generation is None or state.generation > record.generation:
        return f"any message that was settled up to generation {record.generation} may be lost"
    first = state.generation + 1
    since = (
        f"generation {first}" if first == record.generation else f"generations {first} to {record.generation}"
    )
    return f"any message that was settled in {since} may be lost"
