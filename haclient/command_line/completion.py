"""Completion in shells: click's own, extended to words with ``=`` and ``:``.

Rules
-----
* bash splits words at ``=`` and ``:`` (``COMP_WORDBREAKS``), and replaces only the last part.  So the parts
  are joined before click reads them, and the answer is the text after the last of these characters.
* In bash and zsh, ``nospace`` suppresses the space after a name that needs a value; fish adds none.
Source: click, *Shell Completion*, "Adding Support for a Shell"; the scripts are click's with one more type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from click import shell_completion
from click.shell_completion import CompletionItem, add_completion_class

NO_SPACE = "nospace"

_BREAKS = re.compile(r"[=:]+")
_LAST_BREAK = re.compile(r".*[=:]", re.DOTALL)


class BashComplete(shell_completion.BashComplete):
    """Completion in bash."""

    source_template = shell_completion.BashComplete.source_template.replace(
        """        elif [[ $type == 'plain' ]]; then
""",
        """        elif [[ $type == 'nospace' ]]; then
            COMPREPLY+=($value)
            compopt -o nospace
        elif [[ $type == 'plain' ]]; then
""",
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the word at it."""
        args, last = super().get_completion_args()
        words = _joined([*args, last])
        self._typed = _value_of(words[-1])
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Format a line of the answer."""
        kept = _LAST_BREAK.match(self._typed)
        return f"{item.type},{item.value[kept.end() if kept else 0 :]}"


class ZshComplete(shell_completion.ZshComplete):
    """Completion in zsh."""

    source_template = shell_completion.ZshComplete.source_template.replace(
        """        elif [[ "$type" == "dir" ]]; then
""",
        """        elif [[ "$type" == "nospace" ]]; then
            compadd -U -S '' -- "$key"
        elif [[ "$type" == "dir" ]]; then
""",
    )

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Format the lines of the answer: type, value, description."""
        if item.type == NO_SPACE:  # compadd inserts the value unchanged
            return f"{item.type}\n{item.value}\n_"
        return super().format_completion(item)


class FishComplete(shell_completion.FishComplete):
    """Completion in fish, which adds no space to a word that ends with ``=``."""

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Format a line of the answer."""
        if item.type == NO_SPACE:
            return super().format_completion(CompletionItem(item.value, help=item.help))
        return super().format_completion(item)


def _joined(words: Iterable[str]) -> list[str]:
    """Join the parts of each word that bash split."""
    joined: list[str] = []
    glue = False
    for word in words:
        is_break = _BREAKS.fullmatch(word) is not None
        if joined and (glue or is_break):
            joined[-1] += word
        else:
            joined.append(word)
        glue = is_break
    return joined


def _value_of(word: str) -> str:
    """Return the part of ``--name=value`` to complete."""
    return word.partition("=")[2] if word.startswith("--") else word


def register() -> None:
    """Use these classes instead of click's."""
    add_completion_class(BashComplete)
    add_completion_class(ZshComplete)
    add_completion_class(FishComplete)
