"""The source of a link and the user that it connects as, from the options of its exchange, without secrets.

Rules
-----
* Stored and replicated options contain no password.  A URL with one is refused, at declaration and when it
  is found in a store of an older version.
* A link follows one cluster, as one user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL

FROM, PASSWORD_FILE = "from", "password_file"
"""The exchange's options: the URL of the source, and the path of the password file on each member."""

_INSTEAD = (
    "write amqp://user@host:port, put the password into a file of the same path on each member,"
    " and name that (link add --from-password-file PATH)"
)


class SourceConfigError(ValueError):
    """The options of a link are not valid; suggests a correction, without any password."""


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The source of a link.

    :param user: ``None`` for anonymous.
    :param password_file: ``None`` if no password is needed.
    """

    url: ClusterURL
    user: str | None = None
    password_file: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SourceConfig | None:
        """Read the options of an exchange; ``None`` if it has no link.

        :raises SourceConfigError: when they are not valid.
        """
        text, file = options.get(FROM), options.get(PASSWORD_FILE)
        if text is None:
            if file is not None:
                raise SourceConfigError("there is no source that the password file belongs to")
            return None
        try:
            url = ClusterURL.parse(str(text))
        except ClusterURLError as error:
            raise SourceConfigError(str(error)) from error
        _check_url(url)
        users = {seed.user for seed in url.seeds}
        if file is not None:
            _check_file(str(file), users)
        return cls(url, next(iter(users)), None if file is None else str(file))

    def __str__(self) -> str:
        return str(self.url)


def _check_url(url: ClusterURL) -> None:
    if any(seed.password is not None for seed in url.seeds):
        raise SourceConfigError(f"the URL of a link has no password in it, for it is stored: {_INSTEAD}")
    if url.options.dr:
        raise SourceConfigError("a link follows one site: leave the option 'dr' out")


def _check_file(path: str, users: set[str | None]) -> None:
    if None in users or len(users) > 1:
        raise SourceConfigError("a password file belongs to one user: write amqp://user@host:port,host:port")
    if not PurePosixPath(path).is_absolute() or not path.isprintable():
        raise SourceConfigError(
            f"a password file is named by its whole path, the same on each member: not {path!r}"
        )
