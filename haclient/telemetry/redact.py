"""What must not be written: credentials, and whatever came from the application.

Rules
-----
1. Of what a peer says only the condition's name is written, never its words: they may quote anything that
   was sent to it, a message's body or a password, in whatever form.  Words are written where
   this client, the resolver, TLS or the operating system chose them.
2. Whatever is written and came over the network (words, conditions, hosts, cluster names) is looked through
   for every password that the factory has used, also in base64, in SASL PLAIN's form and
   percent-encoded, upper case or lower; what has one is left out whole.
3. A password that stands in the URL as a host, or is the client's id, is no secret: hosts and names are
   written all the same.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote

from haclient.discovery.evidence import Failure, FailureReason

_CONDITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,127}")
_LONGEST_WORDS = 300
# The names of a cluster are few; peers can make them many.
_MOST_NAMES = 1000
_OWN_WORDS = frozenset(FailureReason) - {
    FailureReason.CLOSED,
    FailureReason.NOT_AMQP,
    FailureReason.ENDED,
    FailureReason.AUTHENTICATION,
    FailureReason.AUTHENTICATION_TEMPORARY,
}
# Of the other kinds, see links.misses, these are not the peer's.
_OWN_BEGINNINGS = (
    "the peer closed the socket",
    "closed without a condition",
    "closed by the peer",
    "internal error: ",
    "no credentials: ",
    "no SASL mechanism in common",
    "the credentials that were refused here",
    "[Errno ",
)


class Veil:
    """Knows the secrets of one factory.

    :param public: names that are written whatever the passwords are.
    """

    def __init__(self, public: tuple[str, ...] = ()) -> None:
        self._public = tuple(name.casefold() for name in public)
        self._secrets: tuple[str, ...] = ()
        self._in_names: tuple[str, ...] = ()
        self._known: set[tuple[str | None, str]] = set()
        self._clean: set[str] = set()

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

    def words(self, text: str) -> str | None:
        """Words that no peer chose, or nothing if there is a secret in them."""
        found = text.casefold()
        return None if any(secret in found for secret in self._secrets) else text[:_LONGEST_WORDS] or None

    def name(self, text: str | None) -> str | None:
        """A name that a peer gave."""
        if text is None or text in self._clean:
            return text
        found = text.casefold()
        if any(secret in found for secret in self._in_names):
            return None
        if len(self._clean) >= _MOST_NAMES:
            self._clean.clear()
        clean = text[:_LONGEST_WORDS]
        self._clean.add(clean)
        return clean

    def condition(self, text: str | None) -> str | None:
        """An AMQP condition, if it looks like one."""
        return self.words(text) if text is not None and _CONDITION.fullmatch(text) else None

    def ending(self, reason: str, condition: str | None) -> str | None:
        """Why a connection ended, where that is not the peer's words."""
        return self.words(reason) if condition is None else None

    def detail(self, miss: Failure) -> str | None:
        """What is said of a miss, where that is not the peer's words."""
        if miss.kind in _OWN_WORDS or miss.detail.startswith(_OWN_BEGINNINGS):
            return self.words(miss.detail)
        return None


def _forms(user: str, password: str) -> set[str]:
    """How a password may look on the wire."""
    raw = password.encode(errors="surrogatepass")
    plain = b"\0".join((b"", user.encode(errors="surrogatepass"), raw))
    encoded = {b64encode(data).decode().rstrip("=") for data in (raw, plain)}
    return {password, quote(raw, safe=""), repr(password)[1:-1], *encoded}
