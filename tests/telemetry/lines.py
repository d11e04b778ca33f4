"""Reading what was written, for the tests of this folder."""

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
# Sources of tests that write lines which no client would.
_MADE_UP = ("/numbers/",)


def text(folder: Path) -> str:
    """Everything that readers would see."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        # One that is gone now is compressed, and read below.
        with contextlib.suppress(FileNotFoundError):
            found.append(path.read_text())
    packed = (gzip.decompress(path.read_bytes()).decode() for path in sorted(folder.glob("*.jsonl.gz")))
    return "".join((*packed, *found))


def lines(folder: Path, *kinds: str) -> list[Line]:
    """The lines, each once, in the order of their ids; of these kinds (their last word) if some are given.

    Each is checked against the contract: whatever a test makes the client or a member write.
    """
    # What is being written this moment may be read in part.
    whole = (line for line in text(folder).splitlines() if line.endswith("}}"))
    found = {line["id"]: line for line in map(json.loads, whole)}
    ordered = [found[each] for each in sorted(found)]
    for line in ordered:
        broken = "" if line["source"].startswith(_MADE_UP) else breach(line)
        assert not broken, (broken, line)
    return [line for line in ordered if not kinds or line["type"].rpartition(".")[2] in kinds]


@cache
def _closed() -> Mapping[str, Any]:
    """The schemas of the contract, with nothing but the keys that they name."""
    schemas: dict[str, Any] = json.loads(json.dumps(check.schemas()))
    return {kind: schema["properties"] for kind, schema in schemas.items()}


def breach(line: Line) -> str:
    """In what a line that we wrote is not as the contract says, empty for nothing."""
    known = _closed()[line["type"]]
    added = line.keys() - known.keys() | line["data"].keys() - known["data"]["properties"].keys()
    return check.violation(line, check.schemas()[line["type"]]) or ", ".join(sorted(added))


def words(found: Iterable[Line]) -> list[str]:
    """What happened, in a word each."""
    return [line["type"].rpartition(".")[2] for line in found]


async def until(true: Callable[[], object]) -> None:
    """Wait until something is true of files that another thread or process writes."""
    async with asyncio.timeout(_PATIENCE):
        while not true():  # noqa: ASYNC110  (there is no event for it)
            await asyncio.sleep(0.01)
