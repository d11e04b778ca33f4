"""What a fuzz target is: a function of bytes that raises when a rule is broken, and a bug planted in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

_LENGTH_OF_HASH = 40

Mutate = Callable[[bytes, int], bytes]

CORPUS = Path(__file__).parent / "corpus"


class Defect(AssertionError):
    """A rule that an input has broken."""


class Target(ABC):
    """One target.

    :cvar name: on the command line, and of its folder in the corpus.
    :cvar scripted: whether its inputs are scripts of steps (``script``), which are mutated as such.
    :cvar mutates: whether the target makes some of its inputs itself (``mutated``).
    :cvar words: what inputs of any bytes are made of here: the mutations put them in.
    """

    name: str
    scripted = False
    mutates = False
    words: tuple[bytes, ...] = ()

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Give one input to the code.

        :raises Exception: any at all, when the code breaks a rule; what it may raise is caught here.
        """

    @abstractmethod
    def planted(self) -> AbstractContextManager[object]:
        """A bug in the code, which the fuzzer must find: the proof that it can find one."""

    def mutated(self, data: bytes, limit: int, seed: int, otherwise: Mutate) -> bytes:
        """Another input, for a target that ``mutates``; ``otherwise`` is what libFuzzer makes of it."""
        return otherwise(data, limit)

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what the target holds."""

    @property
    def folder(self) -> Path:
        """Its corpus."""
        return CORPUS / self.name

    def inputs(self) -> list[Path]:
        """The inputs that are kept, by name."""
        return sorted(path for path in self.folder.glob("*") if path.is_file())

    def seeds(self) -> list[Path]:
        """Those that are valid traffic, and not what a merge has added."""
        return [path for path in self.inputs() if not is_merged(path)]


def is_merged(path: Path) -> bool:
    """Whether a merge has added an input: libFuzzer names it by its hash."""
    return len(path.name) == _LENGTH_OF_HASH
