"""A client of a member that takes tokens, by SASL and by ``$cbs``: as ``server``, and no client gets a name
without sending a token that is accepted.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from broker_stub.admission.auth import Auth
from broker_stub.broker import Broker
from broker_stub.connections.connection import ClientConnection
from broker_stub.tokens.key_set import SignedTokens, TokenRules
from broker_stub.tokens.signatures import SharedAccess
from haclient.engine.sasl import server_mechanisms
from haclient.engine.sasl.claims import SHARED_ACCESS
from haclient.engine.sasl.users import TokenOwner
from tests.fuzz.members import OPTIONS
from tests.fuzz.script import parse
from tests.fuzz.target import Defect
from tests.fuzz.targets.server import Server
from tests.fuzz.wire import Wire
from tests.identity_provider import IdentityProvider

VALID, NEWER, GUEST = "a.valid.token", "another.valid.token", "guest"


class Tokens:
    """Accepts ``VALID`` and ``NEWER``, and the tokens of keys that no input has."""

    def __init__(self, folder: Path) -> None:
        (folder / "keys").write_text(f"Root:{folder}\n")
        self._signed = SignedTokens(TokenRules(str(IdentityProvider(folder).key_set)))
        self._shared = SharedAccess(folder / "keys")

    def owner(self, token: str) -> TokenOwner:
        if token in (VALID, NEWER):
            return TokenOwner(GUEST, None)
        return self._shared.owner(token) if token.startswith(SHARED_ACCESS) else self._signed.owner(token)


class ServerWithTokens(Server):
    name = "server_tokens"

    def __init__(self) -> None:
        self.users: set[str | None] = set()
        """The names of the last input's client."""
        self._folder = Path(tempfile.mkdtemp(prefix="tokens-"))
        auth = Auth(tokens=Tokens(self._folder), claims=True)
        super().__init__(replace(OPTIONS, auth=auth))

    def _play(self, broker: Broker, wire: Wire, data: bytes) -> None:
        self.users, steps = set(), list(parse(data))
        claimed = ClientConnection.claimed

        def claim(connection: ClientConnection, owner: TokenOwner) -> str:
            refused = claimed(connection, owner)
            self.users.add(connection.user)
            return refused

        with (
            mock.patch.object(broker, "decide", wraps=broker.decide) as decide,
            mock.patch.object(ClientConnection, "claimed", claim),
        ):
            wire.play(steps)
        self.users |= {call.args[0].user for call in decide.call_args_list}
        sent = b"".join(step.body for step in steps)
        if not self.users <= {None, GUEST} or (
            GUEST in self.users and not any(each.encode() in sent for each in (VALID, NEWER))
        ):
            raise Defect(f"a client without a token has the names {self.users}")

    def planted(self) -> AbstractContextManager[object]:
        """A token that is refused lets the client in."""
        original = server_mechanisms._of_token

        def wrong(mechanism: str, tokens: Tokens, token: str, authority: str) -> server_mechanisms.Login:
            try:
                return original(mechanism, tokens, token, authority)
            except server_mechanisms.RefusedLogin:
                return server_mechanisms.Login(mechanism, GUEST)

        return mock.patch.object(server_mechanisms, "_of_token", wrong)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


TARGET = ServerWithTokens
