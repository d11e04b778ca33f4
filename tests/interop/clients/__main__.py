"""Takes other clients through failovers of the pair, and prints a table.

``python -m tests.interop.clients [--kills 10] [--only NAME ...] [--logs FOLDER]``

A client without its toolchain or packages is skipped, with the reason. Exits with 1 if any other client
fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.clients.building import MissingClientError
from tests.interop.clients.failovers import ProgramError, Result, median_and_worst, run
from tests.interop.clients.recorded import UnreadableLineError
from tests.interop.clients.toolchains import CLIENTS, Client

_COLUMNS = (
    ("client", 21),
    ("kills", 6),
    ("settled", 8),
    ("missing", 8),
    ("doubled", 8),
    ("redelivered", 12),
    ("redirects", 10),
    ("sends out, s", 14),
    ("receives out, s", 16),
)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _row(*cells: object) -> str:
    first, *others = (str(cell) for cell in cells)
    widths = [width for _, width in _COLUMNS]
    return first.ljust(widths[0]) + "".join(c.rjust(w) for c, w in zip(others, widths[1:], strict=False))


def _facts(client: Client, result: Result) -> str:
    verdict = result.verdict
    return _row(
        f"{client.name} {client.version}",
        result.kills,
        verdict.acknowledged,
        len(result.missing),
        len(verdict.twice),
        verdict.duplicates,
        result.redirects or "-",
        median_and_worst(result.send_outages),
        median_and_worst(result.receive_outages),
    )


def _wrongs(result: Result) -> str:
    verdict = result.verdict
    wrongs = {
        "missing": result.missing,
        "doubled": verdict.twice,
        "unexpected": verdict.unexpected,
        "out of order": verdict.disordered,
        "not settled": range(result.unsettled),
    }
    return "; ".join(f"{what}: {len(found)}, first {found[0]}" for what, found in wrongs.items() if found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Other clients through failovers of the pair.")
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--only", nargs="+", choices=[client.name for client in CLIENTS], default=None)
    parser.add_argument("--logs", type=Path, default=None, help="keep the programs' logs in this folder")
    return parser.parse_args()


def _try(client: Client, kills: int, folder: Path) -> tuple[str, str]:
    """Return a client's outcome, and its line in the table."""
    name = f"{client.name} {client.version}"
    try:
        command = client.command()
    except MissingClientError as reason:
        return "skipped", f"{name:21} skipped: {reason}"
    try:
        result = asyncio.run(run(client, command, kills=kills, folder=folder))
    except (ProgramError, UnreadableLineError, TimeoutError) as error:
        return "failed", f"{name:21} failed: {error}"
    line = _facts(client, result)
    return ("passed", line) if result.holds else ("failed", f"{line}  failed: {_wrongs(result)}")


def main() -> int:
    """Run all clients; print the table and the counts."""
    arguments = _arguments()
    clients = [client for client in CLIENTS if arguments.only is None or client.name in arguments.only]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    _say(_row(*(title for title, _ in _COLUMNS)))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for client in clients:
            outcome, line = _try(client, arguments.kills, folder)
            counts[outcome] += 1
            _say(line)
    _say(f"in {time.monotonic() - began:.0f} s; outages: median / worst over the kills")
    _say(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
