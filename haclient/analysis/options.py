"""The options that ``haclient analyze`` and the program for ``spark-submit`` have in common.

One table for click and for argparse, as the zip for ``spark-submit`` has no click.  A value is read by a
function that raises a ``ValueError``, which says what is wrong.
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
"""Share of the time that connections should be usable, if nobody says otherwise: 43 minutes away a month."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :param name: how it is written.
    :param metavar: stands for the value in the help.
    :param read: reads a value.
    :param default: the text that is read where the option is not given.
    :param multiple: it may be given again, and each value counts.
    """

    name: str
    metavar: str
    read: Callable[[str], Any]
    help: str
    default: str | None = None
    multiple: bool = False


def folder(text: str) -> Path:
    """Read the path of a folder that may not exist yet.

    :raises ValueError: when it is a file.
    """
    if Path(text).is_file():
        raise ValueError(f"{text!r} is a file")
    return Path(text)


def former_run(text: str) -> Path:
    """Read the path of a folder that exists.

    :raises ValueError: when it does not.
    """
    if not Path(text).is_dir():
        raise ValueError(f"{text!r} is no directory")
    return Path(text)


def per_cent(text: str) -> float:
    """Read a number from 0 to 100.

    :raises ValueError: when it is none.
    """
    return _number(text, lambda value: 0 <= value <= 100, "from 0 to 100")  # noqa: PLR2004 - per cent


def rate(text: str) -> float:
    """Read a number above 0.

    :raises ValueError: when it is none.
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
