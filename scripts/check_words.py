"""Refuse words that the field does not use: ``.make-venv/bin/python scripts/check_words.py``.

The check splits names at ``_`` and at capitals.  It reads the names that the folders define (modules,
classes, functions, parameters, attributes, variables), and the texts for people (log lines, help, errors).
``BANNED`` has each word with its replacement.  A term of two words matches two consecutive parts of a name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FOLDERS = ("haclient", "broker_stub", "benchmarks/grid", "benchmarks/storm")

_CLIENT = {
    "face": "API",
    "faces": "APIs",
    "miss": "failure",
    "misses": "failures",
    "missed": "failed",
    "flight": "pending attempt",
    "flights": "pending attempts",
    "appointment": "reservation",
    "appointments": "reservations",
    "lead": "search owner",
    "farewell": "peer close",
    "seat": "pending receive",
    "veil": "redactor",
    "conceal": "redact",
    "unheard": "dropped events",
    "away": "downtime",
    "set up": "connection setup",
    "told": "reported",
    "tells": "reports",
    "way": "route",
    "ways": "routes",
    "epoch": "topology version, session number",
    "hint": "retry after",
    "hints": "retry after",
    "firm": "a state of the table",
    "walking": "a state of the table",
    "look": "poll, tick",
    "room": "free dials, window",
    "asking": "member requests",
    "happenings": "proton events",
}

BANNED: Mapping[str, Mapping[str, str]] = {
    "haclient": _CLIENT,
    "benchmarks": _CLIENT,
    "haclient/discovery": {
        "take out": "withdraw",
        "slot": "reservation",
        "heed": "apply retry after",
        "judge": "check redirects",
        "rest": "back off",
        "set out": "start round",
        "news": "newly known primary",
        "kin": "same domain",
    },
    "haclient/core": {
        "pass on": "wake next",
        "arrival": "wait message",
        "taken": "replenish credit",
        "take back": "withdraw",
        "plan": "connect params",
        "planner": "params provider",
        "reports": "attempt callbacks",
        "claim": "mark settled",
        "order": "action",
        "rest": "back off",
    },
    "haclient/engine": {"ending": "close reason"},
    "haclient/reactor": {
        "happenings": "proton events",
        "wishes": "connect options",
        "lines": "connectors",
        "keeping": "background loop",
        "taker": "event handler",
        "attend": "handle",
        "stand in": "detached connection",
        "carry": "transfer",
    },
    "haclient/telemetry": {
        "silence": "null telemetry",
        "happened": "telemetry entry",
        "tally": "event counter",
        "track": "connection tracker",
    },
    "haclient/tracing": {"station": "tracing context", "carriage": "propagation"},
    "haclient/cli": {
        "words": "formatting",
        "running": "signals",
        "consoles": "formatting",
        "meter": "progress",
    },
    "benchmarks/storm": {
        "book": "results",
        "course": "run",
        "stage": "environment",
        "show": "report",
        "wave": "connection flood",
    },
    "haclient/analysis": {
        "survey": "roll-up",
        "place": "endpoint",
        "words": "dictionary",
        "spelled": "decoded",
        "pulse": "time buckets",
        "beats": "time buckets",
        "halves": "unmatched events",
        "small": "materialize",
        "kept": "materialized",
        "figures": "summary, charts",
        "dirt": "fault injection",
        "luck": "PRNG",
        "odd": "anomaly",
        "absent": "not recovered",
        "state then": "last state",
        "heard at": "last event at",
        "hints obeyed": "retry after honored",
        "why": "error",
    },
    "broker_stub": {
        "face": "member host",
        "outlet": "outgoing connection",
        "comer": "admission request",
        "guest": "parked connection",
        "entrance": "admission controller",
        "keeper": "persister",
        "restoring": "restore",
        "gate": "newcomer scheduler",
        "portion": "time slice",
        "lot": "parking limit",
        "teller": "site event listener",
        "tell": "report",
        "tells": "reports",
        "told": "reported",
        "heir": "eligible member",
        "go alone": "shrink the in-sync set",
        "dedup": "duplicate detection",
        "ticket": "completion",
        "obey": "handle command",
        "objection": "refusal reason",
        "abdicate": "step down",
        "turn away": "close with",
        "hang up": "close",
        "goodbye": "close condition",
        "send on": "redirect",
        "turn": "slot, run once",
        "sealed": "checksum",
        "damage": "corruption",
        "throne": "primary term",
        "reign": "generation",
        "seam": "interface",
        "lap": "catch-up",
        "roster": "managed members",
        "appointment": "primary selector",
        "away": "downtime",
        "way": "route",
        "ways": "routes",
        "room": "queue limits",
        "look": "tick",
        "lead": "replica owner",
        "home": "link owner",
        "follower": "backup host",
        "manager": "supervisor",
        "recovery": "redundancy wait",
        "asking": "member requests",
        "objects": "declare",
        "hints": "retry after",
        "carry out": "apply",
        "hold on": "when complete",
        "reopen": "resume",
        "shut": "suspend",
        "sections": "message format",
        "termini": "terminus",
        "producers": "incoming links",
        "mark": "commit count, site progress, watermark",
        "marks": "commit counts, site progress, watermarks",
        "odd": "anomaly",
        "browser": "queue feed, browse consumer",
        "browsers": "queue feeds, browse consumers",
        "cut": "abort",
        "agreeing": "reconcile",
    },
    "broker_stub/election": {"number": "generation"},
    "broker_stub/member": {"number": "generation"},
    "broker_stub/queueing": {
        "place": "message state",
        "withhold": "hold",
        "hand out": "publish",
        "take out": "remove",
        "put back": "requeue",
        "forget": "discard",
        "parked": "deferred, unroutable",
    },
    "broker_stub/admission": {"access": "auth"},
    "broker_stub/connections": {
        "access": "auth",
    },
    "broker_stub/replication": {"leading": "replica set"},
    "broker_stub/sites": {
        "copied": "backup state",
        "way": "source config",
    },
}
"""The banned words of each folder, with their replacements."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name or a text of the code.

    :param line: from 1.
    """

    line: int
    text: str


def parts(name: str) -> list[str]:
    """Split a name into words: ``HTTPServer_isUp`` is http, server, is, up."""
    words = re.findall(r"ZooKeeper|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [word.lower() for word in words]


def defined(tree: ast.AST) -> Iterator[Use]:
    """Yield the names that the module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield Use(node.lineno, name)
            case ast.arg(arg=name):
                yield Use(node.lineno, name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield Use(node.lineno, name)


def read_by_people(tree: ast.AST) -> Iterator[Use]:
    """Yield log lines, help texts and the texts of errors."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=arguments)):
                yield from _texts(arguments)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "log")), args=arguments):
                yield from _texts(arguments[:1])
            case ast.keyword(arg="help" | "short_help" | "epilog", value=value):
                yield from _texts([value])
            case ast.FunctionDef(decorator_list=[_, *_]) if _is_command(node):
                yield Use(node.lineno, ast.get_docstring(node) or "")


def _is_command(node: ast.FunctionDef) -> bool:
    return any("command" in ast.unparse(one) or "group" in ast.unparse(one) for one in node.decorator_list)


def _texts(values: list[ast.expr]) -> Iterator[Use]:
    for value in values:
        for node in ast.walk(value):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Use(node.lineno, node.value)


def banned_in(folder: str) -> dict[tuple[str, ...], str]:
    """Return the terms that a folder may not use, as tuples of words, with their replacements."""
    return {
        tuple(term.split()): instead
        for at, terms in BANNED.items()
        if folder == at or folder.startswith(f"{at}/")
        for term, instead in terms.items()
    }


def found_in(words: list[str], terms: Mapping[tuple[str, ...], str]) -> Iterator[tuple[str, str]]:
    """Return the terms that occur among ``words``."""
    for start in range(len(words)):
        for size in (1, 2):
            term = tuple(words[start : start + size])
            if len(term) == size and term in terms:
                yield " ".join(term), terms[term]


def complaints(root: Path) -> Iterator[str]:
    """Yield one line for each banned word in the folders below ``root``."""
    for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*.py")):
        where = path.relative_to(root)
        terms = banned_in(where.parent.as_posix())
        tree = ast.parse(path.read_text())
        names = [Use(1, path.stem), *defined(tree)]
        seen = [(use, parts(use.text)) for use in names]
        seen += [(use, re.findall(r"[a-z]+", use.text.lower())) for use in read_by_people(tree)]
        for use, words in seen:
            for term, instead in found_in(words, terms):
                yield f"{where}:{use.line}: {term!r} in {use.text[:60]!r}: say {instead}"


def main() -> int:
    """Print every banned word and return 1 if there is one."""
    found = sorted(set(complaints(ROOT)))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
