"""Refuse docstrings that are hard to read: ``.make-venv/bin/python scripts/check_docstrings.py [-v]``.

Four rates of a folder's docstrings and comments, and of the text of ``docs/``, may not exceed their limits
(``Rates``).  With ``-v`` the script lists each place.

The models are psycopg and PyMongo.  Their rates: ``what`` 0.6 and 0.1, ``openers`` 0.2 % and 0.9 %, ``words``
none.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from check_prose import blocks, pages

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("haclient", "broker_stub", "benchmarks", "examples", "scripts", "tests", "docs")
MOST_WORDS = 25

_OPENER = re.compile(r"(What|Who|Whose|Whom|Whether|Those|That|It|Its)\b")
_WORDS = re.compile(r"\b(nobody|somebody|whom|those of|that of|those that)\b", re.IGNORECASE)
_WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|mypy:|pragma)[^#]*")
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?:[-*+]|\d+\.|\|)\s|\n\s*(?=:\w+[^:\n]*:)")
_FIELD = re.compile(r"^:\w+[^:]*:")
_CODE = re.compile(r"^ {4}\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a text.

    :param what: occurrences of this word in 1,000 words.
    :param openers: docstrings that begin with a pronoun, in percent; see ``_OPENER``.
    :param words: occurrences of the words in ``_WORDS``.
    :param long: sentences of more than 25 words, in percent.
    """

    what: float = 1.0
    openers: float = 2.0
    words: float = 0.0
    long: float = 2.0


@dataclass(frozen=True, slots=True)
class Text:
    """A docstring, a run of comments or a block of a page."""

    path: Path
    line: int
    text: str
    is_docstring: bool = False

    def sentences(self) -> Iterator[str]:
        """Return the sentences; a colon and a semicolon end one too."""
        for paragraph in _PARAGRAPH.split(self.text):
            if not _CODE.search(paragraph):
                text = " ".join(_FIELD.sub("", paragraph.strip()).split())
                yield from filter(None, _SENTENCE.split(text))


def texts(folder: str) -> Iterator[Text]:
    """Return each text of a folder, or of the pages."""
    if folder == "docs":
        for page in pages():
            yield from (Text(page, 0, block) for block in blocks(page.read_text()))
        return
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text()
        yield from (
            Text(path, line, text, is_docstring=True) for line, text in _docstrings(ast.parse(source))
        )
        yield from (Text(path, line, text) for line, text in _comments(source))


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return each string that stands alone: of a module, a class, a function or an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, inspect.cleandoc(text)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Return each run of comments, without directives to tools."""
    first, lines, last = 0, [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if lines and line != last + 1:
            yield first, "\n".join(lines)
            lines = []
        first, last = (first if lines else line), line
        lines.append(_DIRECTIVE.sub("", token.string).strip("# "))
    if lines:
        yield first, "\n".join(lines)


@dataclass(slots=True)
class Count:
    """The sums behind the rates of a folder."""

    all_words: int = 0
    whats: int = 0
    docstrings: int = 0
    openers: int = 0
    words: int = 0
    sentences: int = 0
    long: int = 0

    def add(self, text: Text) -> Iterator[str]:
        """Count one text, and return why it is not good."""
        self.all_words += len(text.text.split())
        whats = len(_WHAT.findall(text.text))
        self.whats += whats
        words = _WORDS.findall(text.text)
        self.words += len(words)
        yield from ["what"] * whats + words
        if text.is_docstring:
            self.docstrings += 1
            if opener := _OPENER.match(text.text):
                self.openers += 1
                yield f"begins with {opener[0]}"
        for sentence in text.sentences():
            self.sentences += 1
            if len(sentence.split()) > MOST_WORDS:
                self.long += 1
                yield f"{len(sentence.split())} words: {sentence}"

    def rates(self) -> Rates:
        """Return the rates so far."""
        return Rates(
            what=1000 * self.whats / max(self.all_words, 1),
            openers=100 * self.openers / max(self.docstrings, 1),
            words=self.words,
            long=100 * self.long / max(self.sentences, 1),
        )


def main() -> int:
    """Print the folders above a limit; return 1 if there are any."""
    failed = False
    for folder in FOLDERS:
        count = Count()
        for text in texts(folder):
            for reason in count.add(text):
                if "-v" in sys.argv:
                    sys.stdout.write(f"{text.path.relative_to(ROOT)}:{text.line}: {reason}\n")
        for field, value, limit in zip(fields(Rates), astuple(count.rates()), astuple(Rates()), strict=True):
            if value > limit:
                failed = True
                sys.stdout.write(f"{folder}: {field.name} {value:.2f}, at most {limit:g}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
