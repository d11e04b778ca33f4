"""Completion in shells: click's own, for words with ``=`` and ``:`` too.

Rules
-----
* bash divides words at ``=`` and ``:`` (``COMP_WORDBREAKS``), and replaces the last part alone: the parts are
  put together before click sees them, and the answer is what follows the last of these characters.
* Of a name that a value must follow no space follows in bash and zsh, which ``nospace`` says; fish adds none.

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
        """The words before the cursor, and the one at it."""
        args, last = super().get_completion_args()
        words = _joined([*args, last])
        self._typed = _value_of(words[-1])
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """A line of the answer."""
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
        """Lines of the answer: type, value, description."""
        if item.type == NO_SPACE:  # compadd takes it as it is
            return f"{item.type}\n{item.value}\n_"
        return super().format_completion(item)


class FishComplete(shell_completion.FishComplete):
    """Completion in fish, which adds no space to a word that ends with ``=``."""

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """A line of the answer."""
        if item.type == NO_SPACE:
            return super().format_completion(CompletionItem(item.value, help=item.help))
        return super().format_completion(item)


def _joined(words: Iterable[str]) -> list[str]:
    """Words, with the parts that bash made of one put together."""
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
    """The part of ``--name=value`` that is completed."""
    return word.partition("=")[2] if word.startswith("--") else word


def register() -> None:
    """Use these in place of click's."""
    add_completion_class(BashComplete)
    add_completion_class(ZshComplete)
    add_completion_class(FishComplete)
