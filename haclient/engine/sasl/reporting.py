"""proton's transport, reporting a log-in that proton has not seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Protocol

import proton


class Negotiation(Protocol):
    """Either side of SASL."""

    @property
    def mechanism(self) -> str | None:
        """Return the mechanism that the client chose; ``None`` before that."""

    @property
    def outcome(self) -> int | None:
        """Return the code of the outcome; ``None`` before it."""

    @property
    def user(self) -> str | None:
        """Return the client's name; ``None`` before an OK outcome."""


class _Sasl(SimpleNamespace):
    """The state of SASL, with the codes of ``proton.SASL``."""

    OK, AUTH, SYS, PERM, TEMP = range(5)  # AMQP 1.0 part 5, section 5.3.3.6


class ReportingTransport(proton.Transport):
    """proton's transport, as handlers see it.

    :ivar negotiation: SASL, unless it is proton's.
    :ivar has_tls: whether there is TLS that is not proton's.
    """

    negotiation: Negotiation | None = None
    has_tls = False

    @property
    def user(self) -> str | None:
        """Return the name of the client; ``None`` before it has authenticated."""
        found: str | None = super().user if self.negotiation is None else self.negotiation.user
        return found

    @property
    def authenticated(self) -> bool:
        """Return whether the client has authenticated."""
        if self.negotiation is None:
            return bool(super().authenticated)
        return bool(self.negotiation.outcome == proton.SASL.OK)

    @property
    def encrypted(self) -> bool:
        """Return whether the connection has TLS."""
        return self.has_tls or bool(super().encrypted)

    def sasl(self) -> Any:
        """Return the state of SASL: ``user``, ``authorization``, ``mech`` and ``outcome``."""
        sasl = self.negotiation
        if sasl is None:
            return super().sasl()
        return _Sasl(user=sasl.user, authorization=sasl.user, mech=sasl.mechanism, outcome=sasl.outcome)
