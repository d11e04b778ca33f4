"""What ``--force-primary`` may lose, in words for the person who gave it.

Force skips rule 1 of ``generation`` and nothing else: it fences no member.
"""

from __future__ import annotations

from broker_stub.election.generation import ArbiterRecord, GenerationState, may_promote

_NOT_FENCED = (
    "No primary was fenced: one that still runs steps down when it reads the arbiter again, within seconds,"
    " and what it settles until then is lost."
)


def forced_loss(state: GenerationState, record: ArbiterRecord) -> str:
    """The warning that goes with a forced promotion.

    :param state: what the member had before.
    :param record: what the arbiter held before.
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
