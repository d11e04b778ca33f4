"""Readers of written telemetry, for the tests of this folder."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from haclient.telemetry.contract import check

Line = dict[str, Any]
_PATIENCE = 30.0
# Sources of tests that write lines which no client would write.
_MADE_UP = ("/numbers/",)


def text(folder: Path) -> str:
    """Return all text that readers would see."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        # A missing file has been compressed, and is read below.
        with contextlib.suppress(FileNotFoundError):
            found.append(path.read_text())
    packed = (gzip.decompress(path.read_bytes()).decode() for path in sorted(folder.glob("*.jsonl.gz")))
    return "".join((*packed, *found))


def lines(folder: Path, *kinds: str) -> list[Line]:
    """Return each line once, in the order of the ids; only these kinds (their last word) if some are given.

    Each line of a test's client or member is checked against the contract.
    """
    # A line that is being written may be read in part.
    whole = (line for line in text(folder).splitlines() if line.endswith("}}"))
    found = {line["id"]: line for line in map(json.loads, whole)}
    ordered = [found[each] for each in sorted(found)]
    for line in ordered:
        broken = "" if line["source"].startswith(_MADE_UP) else breach(line)
        assert not broken, (broken, line)
    return [line for line in ordered if not kinds or line["type"].rpartition(".")[2] in kinds]


@cache
def _closed() -> Mapping[str, Any]:
    """Return the schemas of the contract, restricted to the keys that they name."""
    schemas: dict[str, Any] = json.loads(json.dumps(check.schemas()))
    return {kind: schema["properties"] for kind, schema in schemas.items()}


def breach(line: Line) -> str:
    """Return how a line violates the contract, empty if it does not."""
    known = _closed()[line["type"]]
    added = line.keys() - known.keys() | line["data"].keys() - known["data"]["properties"].keys()
    return check.violation(line, check.schemas()[line["type"]]) or ", ".join(sorted(added))


def words(found: Iterable[Line]) -> list[str]:
    """Return the kind of each line, as one word."""
    return [line["type"].rpartition(".")[2] for line in found]


async def until(true: Callable[[], object]) -> None:
    """Wait until a condition is true of files that another thread or process writes."""
    async with asyncio.timeout(_PATIENCE):
        while not true():  # noqa: ASYNC110  (there is no event for it)
            await asyncio.sleep(0.01)
