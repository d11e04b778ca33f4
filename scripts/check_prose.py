"""Refuse pages that are hard to read: ``.make-venv/bin/python scripts/check_prose.py [PAGE...]``.

The check reads paragraphs, list items and table cells of the pages in the top folder and in ``docs/``; code
counts as one word.  The median sentence of a page has at most 18 words, and no sentence has more than 35.
The pages in ``NOT_YET`` are older than this rule.

In ``docs/`` no line of a code block has more than 96 characters: the documentation site cuts longer lines
if the window is 1280 pixels wide.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_MEDIAN = 18
MOST_WORDS = 35
WIDEST_CODE = 96

NOT_YET = frozenset({})
"""Pages that do not pass yet.  Remove a page when it passes; never add one."""
GENERATED = frozenset({"docs/internals/interop-types.md"})
"""Pages that a program writes: lists of results, not sentences."""

_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_INDENT = 4  # of a code block without a fence
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_RULE = re.compile(r"^\|[\s:|-]+\|$")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9`])")
# Abbreviations whose point does not end a sentence.
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """The measured sentence lengths of a page.

    :param median: words of the median sentence; 0 for a page without prose.
    :param long: the sentences with too many words.
    """

    median: float
    long: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """True if the page meets both limits."""
        return self.median <= MOST_MEDIAN and not self.long


def blocks(text: str) -> Iterator[str]:
    """Return the paragraphs, list items and table cells of a page, without markup."""
    text = _COMMENT.sub("", _FENCE.sub("", text))
    text = _LINK.sub(r"\1", _CODE.sub("CODE", _without_code_blocks(text)))
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = not line.strip() or line.startswith(("#", "|")) or _ITEM.match(line)
        if begins and paragraph:
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("|") and not _RULE.match(line):
            yield from (cell.strip() for cell in line.strip().strip("|").split("|"))
        elif line.strip() and not line.startswith(("#", "|")):
            paragraph.append(_ITEM.sub("", line).strip())


def _without_code_blocks(text: str) -> str:
    return "".join("\n" if code else f"{line}\n" for line, code in _lines(text))


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is code: part of an indented block after an empty line."""
    code = listed = False
    previous = ""
    for line in text.splitlines():
        if line.strip():
            indented = line.startswith("      " if listed else "    ")
            code = indented and (code or not previous.strip())
            listed = bool(_ITEM.match(line)) or (listed and line.startswith(" "))
        yield line, code
        previous = "" if code else line


def wide_code(text: str) -> list[str]:
    """Return the lines of code blocks that are too wide for the documentation site."""
    fenced = [
        line.removeprefix(block[1]) for block in _FENCE.finditer(text) for line in block[0].splitlines()
    ]
    indented = [line[_INDENT:] for line, code in _lines(_FENCE.sub("", text)) if code]
    return [line for line in fenced + indented if len(line) > WIDEST_CODE]


def sentences(text: str) -> Iterator[str]:
    """Return the sentences of a page; a cell or heading of one or two words does not count."""
    for block in blocks(text):
        for sentence in _SENTENCE.split(_ABBREVIATION.sub(r"\1", block)):
            if length(sentence) > 2:  # noqa: PLR2004 - a name, a number, a unit
                yield sentence


def length(sentence: str) -> int:
    """Count the words of a sentence."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def read(text: str) -> Reading:
    """Measure a page."""
    found = list(sentences(text))
    lengths = [length(sentence) for sentence in found]
    long = tuple(sentence for sentence in found if length(sentence) > MOST_WORDS)
    return Reading(statistics.median(lengths) if lengths else 0, long)


def pages() -> list[Path]:
    """Return the hand-written pages of the top folder, of ``docs/`` and of ``changes/``."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "changes" / "README.md"]
    return [page for page in sorted(found) if page.relative_to(ROOT).as_posix() not in GENERATED]


def complaints(page: Path) -> Iterator[str]:
    """Yield one line for each fault of a page."""
    name, text = page.relative_to(ROOT), page.read_text()
    reading = read(text)
    if reading.median > MOST_MEDIAN:
        yield f"{name}: the median sentence has {reading.median:g} words, at most {MOST_MEDIAN}"
    for sentence in reading.long:
        yield f"{name}: {length(sentence)} words, at most {MOST_WORDS}: {sentence}"
    if name.parts[0] == "docs":
        for line in wide_code(text):
            yield f"{name}: {len(line)} characters of code, at most {WIDEST_CODE}: {line}"


def main() -> int:
    """Print every fault and return 1 if a page that must pass has one."""
    given = [Path(page).resolve() for page in sys.argv[1:]]
    checked = given or [page for page in pages() if page.relative_to(ROOT).as_posix() not in NOT_YET]
    found = [line for page in checked for line in complaints(page)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
