"""The messages of a client's mechanism, and the errors of a server's."""

from __future__ import annotations

from typing import Protocol


class RefusedChallenge(Exception):
    """The client does not answer the server's message; the text is the reason.

    :ivar outcome: the SASL code that this stands for; ``None`` if the client alone ends the exchange.
    """

    def __init__(self, text: str, outcome: int | None = None) -> None:
        super().__init__(text)
        self.outcome = outcome


class Mechanism(Protocol):
    """A client's part of one mechanism.

    :ivar proved: whether the server has proved its identity: that it knows the password, or its own key.
    :ivar refusal: the server's reason to refuse the client; empty if it gave none.
    """

    proved: bool
    refusal: str

    def first(self) -> bytes:
        """Return the initial response.

        :raises RefusedChallenge: if there is none.
        """

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge.

        :raises RefusedChallenge: if there is none.
        """

    def end(self, additional: bytes) -> None:
        """Check the data of an OK outcome, empty if there is none.

        :raises RefusedChallenge: if the mechanism may not end with it.
        """
