"""Primaries in a separate process, which can be stopped and killed.

with primary_process() as process:
    (peer,) = process.peers
    process.signal(signal.SIGSTOP)
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_stub.admission.user_file import UserFile
from haclient.engine.settings import SaslServer
from haclient.testing.peers.listening import ANONYMOUS, Peer
from tests.peers.primary import primary

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class PrimaryProcess:
    """A process and its peers."""

    peers: list[Peer]
    process: subprocess.Popen[str]

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, such as SIGSTOP."""
        self.process.send_signal(number)


@contextmanager
def primary_process(
    *,
    count: int = 1,
    grants: int = 100,
    users: Path | None = None,
    mechanisms: Sequence[str] = (),
    properties: Mapping[str, Any] | None = None,
) -> Iterator[PrimaryProcess]:
    """Run good members in another process, which is killed at the end.

    :param users: a file of users, as members read it; without it every client is anonymous.
    :param properties: additional properties of their Opens.
    """
    plan = json.dumps(
        {
            "count": count,
            "grants": grants,
            "users": str(users) if users else None,
            "mechanisms": list(mechanisms),
            "properties": dict(properties or {}),
        }
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.peers.process", plan],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        peers = [Peer(host, port) for host, port in json.loads(process.stdout.readline())]
        yield PrimaryProcess(peers, process)
    finally:
        process.kill()
        process.communicate()


async def _serve(
    count: int, grants: int, users: str | None, mechanisms: list[str], properties: dict[str, Any]
) -> None:
    server = ANONYMOUS
    if users is not None:
        server = SaslServer(mechanisms=tuple(mechanisms), users=UserFile(Path(users)))
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(primary(grants=grants, sasl=server)) for _ in range(count)]
        for peer in peers:
            peer.properties |= properties
        sys.stdout.write(json.dumps([(peer.host, peer.port) for peer in peers]) + "\n")
        sys.stdout.flush()
        # This pipe closes when the parent ends.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(**json.loads(sys.argv[1])))
