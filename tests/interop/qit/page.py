"""Write the page of the results, docs/internals/interop-types.md, to the standard output.

    python -m tests.interop.qit.page RESULTS...

If a case occurs twice in the results, the later result counts.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.interop.qit.causes import cause_of
from tests.interop.qit.results import BROKER, CaseResult, ItemResult, read

NAMES = {
    "haclient": "haclient",
    "haclient-dropin": "drop-in",
    "python-proton": "python-proton",
    "javascript-rhea": "rhea",
    "java-qpid-jms": "Qpid JMS",
    "java-protonj2": "protonj2",
    "cpp-proton": "proton C++",
}
_OURS = ("haclient", "haclient-dropin")
_SUITES = {
    "types": "Primitive types",
    "complex": "Compound types",
    "header": "Header section",
    "jms": "Messages of JMS",
    "jms-headers": "Headers and properties of JMS",
    "large": "Large bodies",
    "larger": "Large bodies",
}
_BROKERS = {"pair": "the pair", "broker-j": "Broker-J", "artemis-locked": "Artemis, replicated"}
_MODES = {"calm": "", "killed": ", primary killed while it runs"}
_SHOWN = 4
_TEXT = 90

Key: TypeAlias = tuple[str, str]
"""Broker and mode."""

_HEAD = """\
# Types, headers and bodies between clients

Every value of [Apache Qpid's interoperability test](https://github.com/apache/qpid-interop-test)
(QIT, 2.0), from every client to every client. `haclient` and its drop-in take part with shims in
`tests/interop/qit/`, the others with QIT's own. These commands make the page:

    python -m tests.interop.qit CHECKOUT --out results.jsonl
    python -m tests.interop.qit CHECKOUT --killed --out results.jsonl
    python -m tests.interop.qit CHECKOUT --broker artemis-locked --killed --ours --out results.jsonl
    python -m tests.interop.qit.page results.jsonl > docs/internals/interop-types.md

A cell counts the values that arrived with their type and every bit. QIT has only texts in maps and
streams of JMS; we added the other types there. *Killed*: the primary gets SIGKILL, again and again,
while one of our shims sends or receives, and once between the sender and the receivers. Foreign shims
know one address and do not reconnect, so nothing is killed while one of them runs. Artemis and Broker-J
lose messages that are not durable with their primary, so all messages of a killed run are durable.
QIT's shim of Qpid JMS cannot send durable messages, and is no sender there. If a section does not name
a pair of clients, the pair was not run there.
"""
_JUDGING = """\
python-proton's codec is the judge: it reads each message too. If it reads the value that was sent, the
receiver is at fault. Otherwise it reads the message without the broker. If the value is wrong there as
well, the sender is at fault; if it is right, the broker is. *With itself*: the client at fault fails in
the same way if it is the other side too. *Bytes*, if they were recorded, are the broker's output: the
body's section, or the name of the property and the bytes behind it.
"""


def page(results: Iterable[CaseResult]) -> str:
    """The page, as Markdown."""
    latest: dict[tuple[str, ...], CaseResult] = {}
    for result in results:
        name = (result.broker, result.mode, result.sender, result.receiver, result.suite, result.case)
        latest[name] = result
    runs: dict[Key, list[CaseResult]] = defaultdict(list)
    for result in latest.values():
        runs[result.broker, result.mode].append(result)
    parts = [_HEAD, *_totals(runs)]
    for key, run in runs.items():
        parts.extend(_run(key, run))
    parts.extend(_faults([item for run in runs.values() for item in run]))
    return "\n".join(parts).rstrip() + "\n"


def _title(key: Key) -> str:
    broker, mode = key
    return f"{_BROKERS.get(broker, broker)}{_MODES[mode]}"


def _totals(runs: dict[Key, list[CaseResult]]) -> Iterator[str]:
    yield "| over | values | arrived | failures of haclient | of the broker | of other clients | kills |"
    yield "|---|---|---|---|---|---|---|"
    for key, run in runs.items():
        items = [item for result in run for item in result.items]
        wrong = [item for item in items if item.problem]
        ours = sum(item.fault in _OURS for item in wrong)
        brokers = sum(item.fault == BROKER for item in wrong)
        numbers = (len(items), len(items) - len(wrong), ours, brokers, len(wrong) - ours - brokers)
        kills = sum(result.kills for result in run)
        version = next((result.version for result in run if result.version), "")
        name = f"{_title(key)}{f' ({version})' if version and key[0] != 'pair' else ''}"
        yield f"| {name} | {' | '.join(map(str, numbers))} | {kills} |"
    yield ""


def _run(key: Key, run: list[CaseResult]) -> Iterator[str]:
    yield f"## Over {_title(key)}\n"
    for title in dict.fromkeys(_SUITES.values()):
        chosen = [result for result in run if _SUITES[result.suite] == title]
        if chosen:
            yield from _suite(title, chosen)


def _suite(title: str, run: list[CaseResult]) -> Iterator[str]:
    """Yield one table: a row for each case, a column for each pair of clients. Pairs without a failure
    share a column.
    """
    cells: dict[str, dict[Key, CaseResult]] = defaultdict(dict)
    for result in run:
        cells[result.case][result.sender, result.receiver] = result
    pairs = sorted({pair for row in cells.values() for pair in row}, key=_by_order)
    bad = [pair for pair in pairs if any(_bad(row[pair]) for row in cells.values() if pair in row)]
    good = [pair for pair in pairs if pair not in bad]
    yield f"### {title}\n"
    if good:
        yield f"Every value arrived: {_grouped(good)}.\n"
    if not bad:
        yield f"{_contents(cells)}\n"
        return
    yield f"| | {' | '.join(_pair(pair) for pair in bad)} |"
    yield "|---" * (len(bad) + 1) + "|"
    for case, row in cells.items():
        yield f"| {case} | {' | '.join(_cell(row.get(pair)) for pair in bad)} |"
    yield ""


def _contents(cells: dict[str, dict[Key, CaseResult]]) -> str:
    """Describe the sent values that no table shows, with the number of values and of pairs of clients."""
    counts = {case: (len(next(iter(row.values())).items), len(row)) for case, row in cells.items()}
    pairs = {each for _, each in counts.values()}
    if len(pairs) == 1:
        return ", ".join(f"{case} ({values})" for case, (values, _) in counts.items()) + "."
    return ", ".join(f"{case} ({values}, {each} pairs)" for case, (values, each) in counts.items()) + "."


def _by_order(pair: Key) -> tuple[int, int]:
    order = list(NAMES)
    return order.index(pair[0]), order.index(pair[1])


def _pair(pair: Key) -> str:
    return f"{NAMES[pair[0]]} → {NAMES[pair[1]]}"


def _grouped(pairs: Iterable[Key]) -> str:
    receivers: dict[str, list[str]] = defaultdict(list)
    for sender, receiver in pairs:
        receivers[sender].append(NAMES[receiver])
    return "; ".join(f"{NAMES[sender]} → {', '.join(names)}" for sender, names in receivers.items())


def _bad(result: CaseResult) -> bool:
    return any(item.problem for item in result.items)


def _cell(result: CaseResult | None) -> str:
    if result is None:
        return ""
    wrong = sum(bool(item.problem) for item in result.items)
    said = f"{len(result.items) - wrong} of {len(result.items)}"
    return f"**{said}**" if wrong else said


@dataclass(frozen=True, slots=True)
class _Failure:
    """One value that did not arrive as it was sent."""

    result: CaseResult
    item: ItemResult

    @property
    def sending(self) -> bool:
        """Return whether the sender is at fault. For a client with itself, return whether it does not send
        at all.
        """
        if self.result.sender == self.result.receiver:
            return "does not send" in self.item.problem
        return self.item.fault == self.result.sender

    @property
    def heading(self) -> tuple[str, str]:
        """Return the culprit, and the reason."""
        suite, fault = self.result.suite, self.item.fault
        if fault == BROKER:
            return _BROKERS.get(self.result.broker, self.result.broker), ""
        cause = cause_of(fault, sending=self.sending, suite=suite, problem=self.item.problem)
        if cause is None:
            return f"{NAMES.get(fault, fault)}, {'as a sender' if self.sending else 'as a receiver'}", ""
        return cause.blame, cause.text


def _faults(run: list[CaseResult]) -> Iterator[str]:
    """Yield every failure, grouped by culprit, with the evidence."""
    yield f"## Whose fault\n\n{_JUDGING}"
    found: dict[tuple[str, str], dict[str, list[_Failure]]] = defaultdict(lambda: defaultdict(list))
    for result in run:
        for item in result.items:
            if item.problem:
                failure = _Failure(result, item)
                found[failure.heading][f"{result.case}: {item.name}"].append(failure)
    if not found:
        yield "Nothing failed.\n"
    for (blame, text), values in found.items():
        yield f"### {blame}\n"
        if text:
            yield f"{text}\n"
        yield "| value | what happens | with itself | times | bytes |"
        yield "|---|---|---|---|---|"
        yield from (_row(value, failures) for value, failures in values.items())
        yield ""


def _row(value: str, failures: list[_Failure]) -> str:
    alone = any(each.result.sender == each.result.receiver for each in failures)
    wire = next((each.item.wire for each in failures if each.item.wire), "")
    happens = failures[0].item.problem.partition(" arrived as ")[2] or failures[0].item.problem
    name = value.partition(": ")[2].removeprefix("property: ")
    cells = (_code(f"{value.partition(': ')[0]}: {name}"), _escaped(happens), "yes" if alone else "no")
    return f"| {' | '.join(cells)} | {len(failures)} | {f'`{wire}`' if wire else ''} |"


def _code(text: str) -> str:
    return f"`{_shortened(text)}`".replace("|", "\\|")


def _escaped(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return _shortened(printable).replace("|", "\\|").replace("<", "\\<")


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."


if __name__ == "__main__":
    sys.stdout.write(page(read(map(Path, sys.argv[1:]))))
