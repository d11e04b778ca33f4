"""Keeps secrets out of telemetry: credentials, and all data of the application.

Rules
-----
1. Of a peer's error only the condition's name is written, never its description: that may quote anything
   that was sent to the peer, a message's body or a password, in any form.  Descriptions are written where
   this client, the resolver, TLS or the operating system wrote them.
2. Every text from the network (descriptions, conditions, hosts, cluster names) is searched
   for every password that the factory has used, also in base64, in SASL PLAIN's form and
   percent-encoded, upper case or lower; a text that has one is left out whole.
3. A password that stands in the URL as a host, or is the client's id, is no secret: hosts and names are
   written all the same.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote

from haclient.discovery.evidence import Failure, FailureReason

_CONDITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,127}")
_LONGEST_TEXT = 300
# The names of a cluster are few; peers can make them many.
_MOST_NAMES = 1000
_OWN_TEXT = frozenset(FailureReason) - {
    FailureReason.CLOSED,
    FailureReason.NOT_AMQP,
    FailureReason.ENDED,
    FailureReason.AUTHENTICATION,
    FailureReason.AUTHENTICATION_TEMPORARY,
}
# Texts of the other kinds that the peer does not write, see ``core.failures``.
_OWN_BEGINNINGS = (
    "the peer closed the socket",
    "closed without a condition",
    "closed by the peer",
    "internal error: ",
    "no credentials: ",
    "this port speaks AMQP ",
    "this port speaks TLS",
    "this port wants TLS",
    "no SASL mechanism in common",
    "the credentials that were refused here",
    "[Errno ",
)


class Redactor:
    """Knows the secrets of one factory.

    :param public: names that are written whatever the passwords are.
    :ivar revision: grows with each password that it learns.
    """

    def __init__(self, public: tuple[str, ...] = ()) -> None:
        self._public = tuple(name.casefold() for name in public)
        self._secrets: tuple[str, ...] = ()
        self._in_names: tuple[str, ...] = ()
        self._known: set[tuple[str | None, str]] = set()
        self._clean: set[str] = set()
        self.revision = 0

    def add(self, user: str | None, password: str | None) -> None:
        """Never write this password."""
        if not password or (user, password) in self._known:
            return
        self._known.add((user, password))
        forms = {form.casefold() for form in _forms(user or "", password)}
        self._secrets = (*self._secrets, *forms)
        public = any(password.casefold() in name for name in self._public)
        self._in_names = self._in_names if public else (*self._in_names, *forms)
        self._clean = set()
        self.revision += 1  # last: who sees it grow finds the password

    def text(self, text: str) -> str | None:
        """A text that no peer wrote, or ``None`` if it holds a secret."""
        found = text.casefold()
        return None if any(secret in found for secret in self._secrets) else text[:_LONGEST_TEXT] or None

    def name(self, text: str | None) -> str | None:
        """A name that a peer gave."""
        if text is None or text in self._clean:
            return text
        if self.holds_secret(text):
            return None
        if len(self._clean) >= _MOST_NAMES:
            self._clean.clear()
        clean = text[:_LONGEST_TEXT]
        self._clean.add(clean)
        return clean

    def holds_secret(self, name: str) -> bool:
        """Whether a password is in a name."""
        found = name.casefold()
        return any(secret in found for secret in self._in_names)

    def condition(self, text: str | None) -> str | None:
        """An AMQP condition, if it looks like one."""
        return self.text(text) if text is not None and _CONDITION.fullmatch(text) else None

    def close_reason(self, reason: str, condition: str | None) -> str | None:
        """Why a connection ended, unless the peer wrote the text."""
        return self.text(reason) if condition is None else None

    def detail(self, failure: Failure) -> str | None:
        """The detail of a failure, unless the peer wrote it."""
        if failure.kind in _OWN_TEXT or failure.detail.startswith(_OWN_BEGINNINGS):
            return self.text(failure.detail)
        return None


def _forms(user: str, password: str) -> set[str]:
    """How a password may look on the wire."""
    raw = password.encode(errors="surrogatepass")
    plain = b"\0".join((b"", user.encode(errors="surrogatepass"), raw))
    encoded = {b64encode(data).decode().rstrip("=") for data in (raw, plain)}
    return {password, quote(raw, safe=""), repr(password)[1:-1], *encoded}
