"""Events that are not as they should be: counted, and told without a flood of words.

Rules
-----
* The first of a case is told at once.  Those that follow are told together, once a second, with their number.
* After a second without any the next one is the first again.
* Nothing is left untold at the end of the exchange, or of this member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Odd:
    """Events of one case.

    :param link: name of the exchange that they came to.
    :param case: as the tally names it.
    :param count: how many there were since the last time.
    :param sequence: of the last one; ``None`` when it has none.
    :param words: what was odd about the last one.
    """

    link: str
    case: str
    count: int
    sequence: int | None
    words: str


Tell = Callable[[Odd], None]


class OddCases:
    """Of one exchange.

    :param tell: is told at once, or by ``look``.
    """

    def __init__(self, link: str, tell: Tell) -> None:
        self._link = link
        self._tell = tell
        self._untold: dict[str, Odd | None] = {}
        """By case; ``None`` when all of them were told just now."""

    def happened(self, case: str, words: str, sequence: int | None = None) -> None:
        """One more."""
        if case not in self._untold:
            self._untold[case] = None
            self._tell(Odd(self._link, case, 1, sequence, words))
            return
        before = self._untold[case]
        count = 1 if before is None else before.count + 1
        self._untold[case] = Odd(self._link, case, count, sequence, words)

    def look(self) -> None:
        """A second is over: tell what has come in it."""
        untold, self._untold = self._untold, {}
        for odd in untold.values():
            if odd is not None:
                self._untold[odd.case] = None
                self._tell(odd)
