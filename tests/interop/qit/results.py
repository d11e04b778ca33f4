"""The results of the cases, and their lines in the results file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BROKER = "broker"
"""The culprit of a failure without a faulty shim."""


@dataclass(slots=True)
class ItemResult:
    """The result of one value.

    :ivar problem: empty if it arrived as it was sent.
    :ivar fault: the culprit: a shim's key, or ``BROKER``; empty without a problem.
    :ivar wire: the first bytes of its body, property or header as the broker delivered it to the judge,
        in hexadecimal; empty if they were not recorded.
    """

    name: str
    problem: str = ""
    fault: str = ""
    wire: str = ""


@dataclass(slots=True)
class CaseResult:
    """The result of one case between two shims.

    :ivar mode: ``calm``, or ``killed``.
    :ivar kills: the number of kills of the primary since the previous case's results.
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
        """Return the line of the results file."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read(paths: Iterable[Path]) -> Iterator[CaseResult]:
    """Yield the results of these files in order, so a repeated case's latest result is last."""
    for path in paths:
        for line in path.read_text().splitlines():
            said: dict[str, Any] = json.loads(line)
            items = [ItemResult(**item) for item in said.pop("items")]
            yield CaseResult(**said, items=items)
