"""Keeps secrets out of telemetry: credentials, and all data of the application.

Rules
-----
1. A peer's error is written only by its condition's name.  Its description may quote anything sent to the
   peer, such as a message's body or a password, in any form.  Descriptions by this client, the resolver, TLS
   or the operating system are written.
2. Every text from the network (descriptions, conditions, hosts, cluster names) is searched for every password
   that the factory has used.  The search covers base64, SASL PLAIN's form and percent-encoding, in upper or
   lower case.  A text with a password is omitted as a whole.
3. A password that is also a host of the URL or the client's id is not a secret: hosts and names are written
   all the same.
4. Of the passwords and tokens that a callable of the application supplies, the newest are known: each
   replaces another one, and a connection may get thousands in its life.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import quote

from haclient.discovery.evidence import Failure, FailureReason

_CONDITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,127}")
_LONGEST_TEXT = 300
# A cluster has few names, but peers can invent many.
_MOST_NAMES = 1000
# One for each of a thousand connections.
_MOST_SUPPLIED = 1000
_OWN_TEXT = frozenset(FailureReason) - {
    FailureReason.CLOSED,
    FailureReason.NOT_AMQP,
    FailureReason.ENDED,
    FailureReason.AUTHENTICATION,
    FailureReason.AUTHENTICATION_TEMPORARY,
}
# Beginnings of texts of other kinds that this client writes, see ``core.failures``.
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


@dataclass(frozen=True, slots=True)
class _Secret:
    forms: frozenset[str]
    is_public: bool
    is_supplied: bool


class Redactor:
    """Knows the secrets of one factory.

    :param public: names that are written even if they hold a password.
    :ivar revision: grows with each password that it learns.
    """

    def __init__(self, public: tuple[str, ...] = ()) -> None:
        self._public = tuple(name.casefold() for name in public)
        self._secrets: tuple[str, ...] = ()
        self._in_names: tuple[str, ...] = ()
        self._known: dict[tuple[str | None, str], _Secret] = {}
        self._clean: set[str] = set()
        self.revision = 0

    def add(self, user: str | None, password: str | None, *, is_supplied: bool = False) -> None:
        """Never write this password.

        :param is_supplied: whether a callable supplied it: see rule 4.
        """
        if not password or (user, password) in self._known:
            return
        forms = frozenset(form.casefold() for form in _forms(user or "", password))
        is_public = any(password.casefold() in name for name in self._public)
        self._known[user, password] = _Secret(forms, is_public, is_supplied)
        supplied = [key for key, each in self._known.items() if each.is_supplied]
        if len(supplied) > _MOST_SUPPLIED:
            del self._known[supplied[0]]
        secrets = self._known.values()
        self._secrets = tuple(form for each in secrets for form in each.forms)
        self._in_names = tuple(form for each in secrets if not each.is_public for form in each.forms)
        self._clean = set()
        self.revision += 1  # last: a reader that sees it grow also finds the password

    def text(self, text: str) -> str | None:
        """Return a text that no peer wrote, or ``None`` if it holds a secret."""
        found = text.casefold()
        return None if any(secret in found for secret in self._secrets) else text[:_LONGEST_TEXT] or None

    def name(self, text: str | None) -> str | None:
        """Return a name that a peer gave, or ``None`` if it holds a secret."""
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
        """Return whether a name contains a password."""
        found = name.casefold()
        return any(secret in found for secret in self._in_names)

    def condition(self, text: str | None) -> str | None:
        """Return an AMQP condition if it looks like one."""
        return self.text(text) if text is not None and _CONDITION.fullmatch(text) else None

    def close_reason(self, reason: str, condition: str | None) -> str | None:
        """Return why a connection ended, or ``None`` if the peer wrote the text."""
        return self.text(reason) if condition is None else None

    def detail(self, failure: Failure) -> str | None:
        """Return the detail of a failure, or ``None`` if the peer wrote it."""
        if failure.kind in _OWN_TEXT or failure.detail.startswith(_OWN_BEGINNINGS):
            return self.text(failure.detail)
        return None


def _forms(user: str, password: str) -> set[str]:
    """Return the forms in which a password may appear on the wire."""
    raw = password.encode(errors="surrogatepass")
    plain = b"\0".join((b"", user.encode(errors="surrogatepass"), raw))
    encoded = {b64encode(data).decode().rstrip("=") for data in (raw, plain)}
    return {password, quote(raw, safe=""), repr(password)[1:-1], *encoded}
