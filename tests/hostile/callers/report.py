"""The results of calls, and a caller's defects: a call that hangs, or an error of an unexpected type."""

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
"""Seconds after its timeout until a call counts as hanging: other tests may need the machine."""
_INTERNAL = "internal error", "in the owner"
_MOST_DEFECTS = 20
# Defects with the same first characters count as one.
_ALIKE = 50
# A traceback is cut to its beginning and end: a recursion has a thousand lines between them.
_HALF = 1500
# Texts that the hostile broker puts into names and descriptions; a terminal or a log would obey them.
_OBEYED = "\x1b]0;owned", "\nERROR forged"
# A page of attempts with their reasons fits, a peer's description as long as a frame does not. proton's own
# errors have any text from the peer.
_LONGEST = 20_000
# Errors that a caller may get: ours, and proton's that the drop-in documents, including invalid arguments.
_ANSWERS = (HaclientError, proton.ProtonException)


@dataclass(slots=True)
class Report:
    """The report of one caller.

    :ivar ends: the number of calls by call and result.
    :ivar defects: the defects found.
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
        """Check a text for human readers: of an error, or of a log."""
        if any(word in text for word in _OBEYED):
            at = max(text.find(word) for word in _OBEYED)
            self.defect(f"{where}: control characters of the peer: {text[max(0, at - 80) : at + 80]!r}")

    def hangs(self, call: str, timeout: float) -> None:
        """Count a call that did not return."""
        self.defect(f"{call} did not return {GRACE:g} s after its timeout of {timeout:g} s")

    def defect(self, text: str) -> None:
        """Record a defect, only the first of its kind."""
        known = any(each[:_ALIKE] == text[:_ALIKE] for each in self.defects)
        if not known and len(self.defects) < _MOST_DEFECTS:
            self.defects.append(text if len(text) < 2 * _HALF else f"{text[:_HALF]}\n...\n{text[-_HALF:]}")

    def write(self) -> None:
        """Print the report as the last line."""
        sys.stdout.write(json.dumps({"ends": self.ends, "defects": self.defects}) + "\n")
        sys.stdout.flush()


class DefectLog(logging.Handler):
    """Records tracebacks in the log as defects: the client did not expect these errors."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Record an entry with a traceback, or one that names an internal error."""
        text = record.getMessage()
        self._report.check_text(f"logged by {record.name}", text)
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1]))
            self._report.defect(f"logged by {record.name}: {text}\n{lines}")
        elif any(word in text for word in _INTERNAL):
            self._report.defect(f"logged by {record.name}: {text}")


def begin() -> Report:
    """Start a report: all imports are done."""
    report = Report()
    logging.basicConfig(level=logging.INFO, handlers=[DefectLog(report)])
    faulthandler.enable()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return report
