"""The options shared by ``haclient analyze`` and the program for ``spark-submit``.

One table serves click and argparse, because the zip for ``spark-submit`` has no click.  Each option has a
function that reads its value, or raises a ``ValueError`` that names the problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haclient.analysis import thresholds
from haclient.telemetry.rfc3339 import moment

SLO = 0.999
"""Default share of the time that connections should be usable: 43 minutes of downtime a month."""


@dataclass(frozen=True, slots=True)
class Option:
    """One command-line option.

    :param name: as written on the command line.
    :param metavar: placeholder for the value in the help.
    :param read: parses a value.
    :param default: text to parse if the option is not given.
    :param multiple: whether the option may be repeated; every value counts.
    """

    name: str
    metavar: str
    read: Callable[[str], Any]
    help: str
    default: str | None = None
    multiple: bool = False


def folder(text: str) -> Path:
    """Parse the path of a folder that may not exist yet.

    :raises ValueError: if it is a file.
    """
    if Path(text).is_file():
        raise ValueError(f"{text!r} is a file")
    return Path(text)


def former_run(text: str) -> Path:
    """Parse the path of an existing folder.

    :raises ValueError: if it is not a folder.
    """
    if not Path(text).is_dir():
        raise ValueError(f"{text!r} is no directory")
    return Path(text)


def per_cent(text: str) -> float:
    """Parse a number from 0 to 100.

    :raises ValueError: if it is not one.
    """
    return _number(text, lambda value: 0 <= value <= 100, "from 0 to 100")  # noqa: PLR2004 - per cent


def rate(text: str) -> float:
    """Parse a finite number above 0.

    :raises ValueError: if it is not one.
    """
    return _number(text, lambda value: 0 < value < math.inf, "above 0")


def _number(text: str, allowed: Callable[[float], bool], which: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not allowed(value):
        raise ValueError(f"{text!r} is no number {which}")
    return value


OPTIONS = (
    Option("--out", "DIR", folder, "Folder for the results."),
    Option("--tables", "URI", str, "Where the tables go, for a cluster that cannot write to --out."),
    Option("--since", "TIME", moment, "Lines from this time on, RFC 3339."),
    Option("--until", "TIME", moment, "Lines before this time."),
    Option("--cluster", "NAME", str, "Connections of this cluster only."),
    Option(
        "--slo",
        "NUMBER",
        per_cent,
        "Share of the time that connections should be usable, in per cent.",
        default=f"{100 * SLO:g}",
    ),
    Option("--baseline", "DIR", former_run, "Results of a former run, which the report compares with."),
    Option(
        "--accept-rate",
        "NUMBER",
        rate,
        "Connections a second that the primary is configured to admit, for the advice.",
    ),
    Option(
        "--fail-if",
        "CONDITION",
        thresholds.parse,
        "Exit with 1 when it holds: p99_downtime>5.",
        multiple=True,
    ),
)
