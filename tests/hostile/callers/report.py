"""How calls ended, and what a caller's process may not do: hang, or show an error that is no answer."""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field

import proton

from haclient.errors import HaclientError

GRACE = 20.0
"""Seconds after its timeout until a call counts as one that hangs: other tests may need the machine."""
_INTERNAL = "internal error", "in the owner"
_MOST_DEFECTS = 20
# Defects that begin alike are one.
_ALIKE = 50
# Of a traceback the beginning and the end: a recursion has a thousand lines between them.
_HALF = 1500
# What the hostile broker puts into names and descriptions: a terminal or a log would obey it.
_OBEYED = "\x1b]0;owned", "\nERROR forged"
# A page of attempts, each with its reason; not a description of a peer as long as a frame.  proton's own
# errors have whatever the peer said.
_LONGEST = 20_000
# Errors that a caller may get: ours, those of proton that the drop-in documents, and of arguments.
_ANSWERS = (HaclientError, proton.ProtonException)


@dataclass(slots=True)
class Report:
    """Of one caller.

    :ivar ends: how often each call ended how.
    :ivar defects: what must not have happened.
    """

    ends: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def ended(self, call: str, error: BaseException | None) -> None:
        """Count the end of a call."""
        self.ends[f"{call}: {'done' if error is None else type(error).__name__}"] += 1
        if error is None:
            return
        text = "".join(traceback.format_exception(error))
        if not isinstance(error, _ANSWERS) or any(word in str(error) for word in _INTERNAL):
            self.defect(f"{call} ended with {text}")
        elif not str(error).strip():
            self.defect(f"{call} ended with {type(error).__name__} and no text")
        elif isinstance(error, HaclientError) and len(str(error)) > _LONGEST:
            self.defect(f"{call} ended with {len(str(error))} characters: {str(error)[:200]!r}")
        self.check_text(f"{call} ended with {type(error).__name__}", str(error))

    def check_text(self, where: str, text: str) -> None:
        """Look at a text that a person reads: an error's, or a log's."""
        if any(word in text for word in _OBEYED):
            at = max(text.find(word) for word in _OBEYED)
            self.defect(f"{where}: control characters of the peer: {text[max(0, at - 80) : at + 80]!r}")

    def hangs(self, call: str, timeout: float) -> None:
        """Count a call that did not return."""
        self.defect(f"{call} did not return {GRACE:g} s after its timeout of {timeout:g} s")

    def defect(self, text: str) -> None:
        """Keep what was wrong, the first of its kind."""
        known = any(each[:_ALIKE] == text[:_ALIKE] for each in self.defects)
        if not known and len(self.defects) < _MOST_DEFECTS:
            self.defects.append(text if len(text) < 2 * _HALF else f"{text[:_HALF]}\n...\n{text[-_HALF:]}")

    def write(self) -> None:
        """Print it, as the last line."""
        sys.stdout.write(json.dumps({"ends": self.ends, "defects": self.defects}) + "\n")
        sys.stdout.flush()


class DefectLog(logging.Handler):
    """A traceback in the log is an error that the client did not expect."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with a traceback, or one that names an internal error."""
        text = record.getMessage()
        self._report.check_text(f"logged by {record.name}", text)
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1]))
            self._report.defect(f"logged by {record.name}: {text}\n{lines}")
        elif any(word in text for word in _INTERNAL):
            self._report.defect(f"logged by {record.name}: {text}")


def begin() -> Report:
    """Start a report: everything is imported now."""
    report = Report()
    logging.basicConfig(level=logging.INFO, handlers=[DefectLog(report)])
    faulthandler.enable()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return report
