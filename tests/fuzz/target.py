"""The base of a fuzz target: a function of bytes that raises if a rule is broken, and a planted bug."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

_LENGTH_OF_HASH = 40

Mutate = Callable[[bytes, int], bytes]

CORPUS = Path(__file__).parent / "corpus"


class Defect(AssertionError):
    """An input has broken a rule."""


class Target(ABC):
    """One target.

    :cvar name: its name on the command line, and its folder in the corpus.
    :cvar scripted: whether its inputs are scripts of steps (``script``), with mutations by step.
    :cvar mutates: whether the target makes some of its inputs itself (``mutated``).
    :cvar words: words of unstructured inputs, which the mutations insert.
    """

    name: str
    scripted = False
    mutates = False
    words: tuple[bytes, ...] = ()

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Pass one input to the code.

        :raises Exception: any, if the code breaks a rule; permitted exceptions are caught here.
        """

    @abstractmethod
    def planted(self) -> AbstractContextManager[object]:
        """A bug in the code that the fuzzer must find, to prove that it can."""

    def mutated(self, data: bytes, limit: int, seed: int, otherwise: Mutate) -> bytes:
        """Return another input, if the target ``mutates``; ``otherwise`` is libFuzzer's mutation."""
        return otherwise(data, limit)

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release the target's resources."""

    @property
    def folder(self) -> Path:
        """Return the folder of its corpus."""
        return CORPUS / self.name

    def inputs(self) -> list[Path]:
        """Return the stored inputs, by name."""
        return sorted(path for path in self.folder.glob("*") if path.is_file())

    def seeds(self) -> list[Path]:
        """Return the inputs that are valid traffic, without the inputs that a merge added."""
        return [path for path in self.inputs() if not is_merged(path)]


def is_merged(path: Path) -> bool:
    """Return whether a merge has added an input: libFuzzer names it by its hash."""
    return len(path.name) == _LENGTH_OF_HASH
