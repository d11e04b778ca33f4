"""A client of a member whose users have passwords: as ``server``, and no client enters without a proof.

A step ``Kind.PROOF`` is the frame of a client that knows the password of the user it named.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

from broker_stub.admission.auth import Auth
from broker_stub.admission.user_file import DEFAULT_ADMIN, UserFile, write_users
from broker_stub.broker import Broker
from tests.fuzz.members import OPTIONS
from tests.fuzz.scram import ClientProver
from tests.fuzz.script import parse
from tests.fuzz.target import Defect
from tests.fuzz.targets.server import Server
from tests.fuzz.wire import Wire

PASSWORDS = {DEFAULT_ADMIN: "of the admin", "guest": "of the guest"}


class ServerWithUsers(Server):
    name = "server_users"

    def __init__(self) -> None:
        self.let_in: str | None = None
        """The user of the last input's client; ``None`` if it was refused."""
        self._users = Path(tempfile.mkdtemp(prefix="users-"))
        write_users(self._users / "users", PASSWORDS)
        super().__init__(replace(OPTIONS, auth=Auth(users=UserFile(self._users / "users"))))

    def _play(self, broker: Broker, wire: Wire, data: bytes) -> None:
        wire.keep, wire.prover = True, ClientProver(PASSWORDS)
        with mock.patch.object(broker, "decide", wraps=broker.decide) as decide:
            wire.play(parse(data))
        self.let_in = decide.call_args.args[0].user if decide.called else None
        if decide.called and not wire.prover.proved:
            raise Defect("a client without a proof has been let in")

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._users, ignore_errors=True)


def let_in_by_seeds() -> dict[str, str | None]:
    """Return the user as which each seed is admitted."""
    target, found = ServerWithUsers(), {}
    for path in target.seeds():
        target.run(path.read_bytes())
        found[path.name] = target.let_in
    target.close()
    return found


TARGET = ServerWithUsers
