"""Tokens in a file that another program replaces."""

from __future__ import annotations

import os
from pathlib import Path

from haclient.engine.sasl.claims import MOST_BYTES
from haclient.engine.sasl.token import Token


class TokenFile:
    """Supplies the token in a file, as a Kubernetes service account token or what an agent of a vault writes.

        haclient.connect(url, credentials=TokenFile("/var/run/secrets/tokens/broker"))

    The file is read before each attempt and for each renewal.  A JWT itself says when it expires.

    :param path: a file with the token alone; white space around it is ignored.
    :param user: see ``Token``.
    """

    def __init__(self, path: str | os.PathLike[str], *, user: str | None = None) -> None:
        self.path = Path(path)
        self.user = user

    def __call__(self) -> Token:
        """Read the file.

        :raises OSError: if there is no token in it now: the client tries again.
        """
        with self.path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_BYTES + 2).strip()
        try:
            return Token(text, user=self.user)
        except ValueError as error:  # it is being written
            raise OSError(f"{self.path}: {error}") from None

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"
