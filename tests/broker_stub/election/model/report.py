"""The result of a search, as text."""

from __future__ import annotations

from tests.broker_stub.election.model.search import Outcome


def summary(outcome: Outcome, seconds: float) -> str:
    """Summarize the result in one line."""
    how = "all states" if outcome.complete else "the search was not finished"
    if outcome.broken:
        how = "; ".join(sorted(outcome.broken))
    return f"{outcome.states:,} states, {outcome.transitions:,} transitions in {seconds:.1f} s: {how}"


def counter_example(outcome: Outcome) -> str:
    """Return the moves to the violation, one a line."""
    width = len(str(len(outcome.trace)))
    return "".join(f"  {number:>{width}}. {move}\n" for number, move in enumerate(outcome.trace, 1))
