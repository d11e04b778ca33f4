"""What became of the cases: the lines of the results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BROKER = "broker"
"""Whose fault it is, where it is no shim's."""


@dataclass(slots=True)
class ItemResult:
    """What became of one value.

    :ivar problem: empty if it arrived as it was sent.
    :ivar fault: who is to blame: a shim's key, or ``BROKER``; empty without a problem.
    :ivar wire: the beginning of its body, property or header as the broker handed it to the judge, in
        hexadecimal digits; empty if it was not recorded.
    """

    name: str
    problem: str = ""
    fault: str = ""
    wire: str = ""


@dataclass(slots=True)
class CaseResult:
    """What became of one case between two shims.

    :ivar mode: ``calm``, or ``killed``.
    :ivar kills: of the primary, since the results of the case before.
    """

    broker: str
    version: str
    mode: str
    sender: str
    receiver: str
    suite: str
    case: str
    items: list[ItemResult] = field(default_factory=list)
    kills: int = 0

    def as_json(self) -> str:
        """The line."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read(paths: Iterable[Path]) -> Iterator[CaseResult]:
    """The results in these files; of a case that was run twice, the later ones come later."""
    for path in paths:
        for line in path.read_text().splitlines():
            said: dict[str, Any] = json.loads(line)
            items = [ItemResult(**item) for item in said.pop("items")]
            yield CaseResult(**said, items=items)
