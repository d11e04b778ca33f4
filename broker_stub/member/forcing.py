"""What ``--force-primary`` may lose, in words for the person who gave it.

Force skips rule 1 of ``generation`` and nothing else: it fences nobody.
"""

from __future__ import annotations

from broker_stub.election.generation import ArbiterRecord, GenerationState, may_promote

_NOT_FENCED = (
    "No primary was fenced: one that still runs must be stopped, and what it settles from now on is lost."
)


def forced_loss(state: GenerationState, record: ArbiterRecord) -> str:
    """The warning that goes with a forced promotion.

    :param state: what the member had before.
    :param record: what the arbiter held before.
    """
    own = "no generation" if state.number is None else f"generation {state.number}"
    before = f"The arbiter was at generation {record.number} and this member had {own}: "
    return f"{before}{_missing(state, record)}. {_NOT_FENCED}"


def _missing(state: GenerationState, record: ArbiterRecord) -> str:
    if may_promote(state, record) is None:
        return "nothing that was settled is missing here"
    if state.number is None or state.number > record.number:
        return f"any message that was settled up to generation {record.number} may be lost"
    first = state.number + 1
    since = f"generation {first}" if first == record.number else f"generations {first} to {record.number}"
    return f"any message that was settled in {since} may be lost"
