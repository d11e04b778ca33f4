"""The errors for a cluster URL, an option or a configuration that cannot be used.

Rules: the text never holds a password, nor any text that may be part of one: a port that is not a number, or
the text before an unescaped ``@``.  The errors pickle.
"""

from __future__ import annotations

from haclient.error_catalog.base import HaclientError
from haclient.printable.text import printable


class ClusterURLError(HaclientError, ValueError):
    """A cluster URL is wrong; the text names the mistake and the correct form.

    :ivar option: the option at fault, as it was written; ``None`` if the mistake is elsewhere.
    """

    code = "bad-url"
    connection_usable = False
    safe_to_retry = False

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message, option)
        self.option = option

    def __str__(self) -> str:
        return printable(str(self.args[0]))


class ConfigurationError(ClusterURLError):
    """A key of a configuration from outside the program is wrong or missing.

    :ivar option: the key; ``None`` if a file as a whole is wrong.
    :ivar origin: the key, or the file, by the name that the user knows.
    """

    code = "bad-configuration"

    def __init__(self, message: str, option: str | None = None, origin: str | None = None) -> None:
        super().__init__(message, option)
        self.args = (message, option, origin)
        self.origin = origin
