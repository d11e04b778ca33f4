"""Draw the state tables of the code into docs/internals/; run it after changing a table of moves.

.make-venv/bin/python scripts/state_diagrams.py
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from pathlib import Path

from broker_stub.election.roles import BY_OPERATOR, WITH_ARBITER, Role
from haclient.discovery.states import MOVES as SEARCH_MOVES

ROOT = Path(__file__).resolve().parent.parent
INTERNALS = ROOT / "docs" / "internals"


def diagram(moves: Mapping[tuple[enum.Enum, enum.Enum], enum.Enum], *initial: enum.Enum) -> str:
    """Return the moves as a Mermaid state diagram; a state without moves is an end state."""
    arrows = [f"    [*] --> {state.value}" for state in initial]
    labels: dict[tuple[enum.Enum, enum.Enum], list[str]] = {}
    for (state, move), to in moves.items():
        labels.setdefault((state, to), []).append(str(move.value))
    arrows += [f"    {state.value} --> {to.value}: {', '.join(each)}" for (state, to), each in labels.items()]
    leaving = {state for state, _ in moves}
    ends = dict.fromkeys(to for to in moves.values() if to not in leaving)
    arrows += [f"    {state.value} --> [*]" for state in ends]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])


def fill(text: str, content: str) -> str:
    """Return the text with ``content`` between the markers of the diagram."""
    pattern = re.compile(r"(<!-- moves -->\n).*?(<!-- /moves -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def pages() -> Mapping[Path, str]:
    """Return each page and its diagram."""
    first, *_ = SEARCH_MOVES
    arbitrated, operated = diagram(WITH_ARBITER, Role.CONNECTING), diagram(BY_OPERATOR, Role.PASSIVE)
    member = f"{arbitrated}\n\nWithout an arbiter:\n\n{operated}"
    return {INTERNALS / "search.md": diagram(SEARCH_MOVES, first[0]), INTERNALS / "member.md": member}


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(fill(page.read_text(), content))
