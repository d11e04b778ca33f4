"""The error for a cluster URL, or an option of one, that cannot be used.

Rules: the text never holds a password, nor anything that may be a piece of one (a port that is
not a number, whatever stands before an unescaped ``@``).  The error pickles.
"""

from __future__ import annotations


class ClusterURLError(ValueError):
    """A cluster URL is wrong; the text says what is, and what to write instead.

    :ivar option: the option at fault, as it was written; ``None`` when it is not an option.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message, option)
        self.option = option

    def __str__(self) -> str:
        return str(self.args[0])
