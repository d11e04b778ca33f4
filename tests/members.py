"""Real members for tests: ``broker-stub serve``, each as a process.

    with Members(tmp_path) as members:
        primary = members.start("a", role="primary")
        passive = members.start("b", primary=primary.address)
        primary.kill()
        passive.promote()

Every call blocks until its effect is complete: the process listens, is stopped, or has ended.  A test whose
event loop must run meanwhile makes the calls on a thread.  Members that a test leaves running are killed at
the end, by their pid; if the test process dies, the kernel kills them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import signal
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import AdminClient, MemberStatus
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.statuses import status_with_queues
from tests.certificates import Authority, Certificate
from tests.forked import ForkedProcess

T = TypeVar("T")

ADMIN_USER = "cluster-admin"
ADMIN_PASSWORD = "the password of the cluster's admin"
ADMIN = Credentials(user=ADMIN_USER, password=ADMIN_PASSWORD)
# Python, proton and a port take a fraction of a second, except on a machine that is very busy.
_PATIENCE = 30.0


class Member:
    """One member process, which may be killed and started again at the same port.

    :param folder: for its log and its list of users.
    :param listen: port 0 takes a free port at the first start, and that one ever after.
    :param primary: where the primary is, for a passive member.
    :param certificate: makes the listener ``amqps``.
    :param clients: the authority whose certificate each client must show.
    :param options: more options of ``serve``; ``anonymous=False`` is ``--no-anonymous`` (clients
        need no name otherwise), a tuple repeats the option.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        role: str = "passive",
        listen: str = "127.0.0.1:0",
        users: Mapping[str, str] | None = None,
        primary: str | None = None,
        certificate: Certificate | None = None,
        clients: Authority | None = None,
        log_level: str = "info",
        **options: Any,
    ) -> None:
        self.name = name
        self.certificate = certificate
        self.log = folder / f"{name}.log"
        self._listen = parse_endpoint(listen)
        self._users = folder / f"{name}.users"
        self._passwords = {ADMIN_USER: ADMIN_PASSWORD, **(users or {})}
        self._options: dict[str, Any] = {"name": name, "users": self._users, "anonymous": True, **options}
        if certificate is not None:
            self._options |= {"tls-cert": certificate.chain, "tls-key": certificate.key}
        if clients is not None:
            self._options["tls-client-ca"] = clients.file
        self._tls = _context(certificate, clients)
        self._role, self._primary, self._log_level = role, primary, log_level
        self._process: ForkedProcess | None = None

    # -- where it is --------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The address, ``host:port``."""
        return self._listen.authority

    @property
    def url(self) -> str:
        """The URL, in the form of ``--primary`` and redirects."""
        return f"{'amqps' if self.certificate else 'amqp'}://{self.address}"

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint, in the form of events."""
        return Endpoint(self._listen.host, self._listen.port, self.certificate is not None)

    @property
    def process(self) -> ForkedProcess:
        if self._process is None:
            raise AssertionError(f"member {self.name} was not started")
        return self._process

    # -- the process --------------------------------------------------------------------------

    def start(self, *, role: str | None = None, primary: str | None = None, **options: Any) -> None:
        """Start, and wait until it listens.  The arguments hold for this start only."""
        self._users.write_text("".join(f"{user}:{word}\n" for user, word in self._passwords.items()))
        role, primary = role or self._role, primary or self._primary
        changed = {"role": role, "listen": self.address, "log-level": self._log_level, **options}
        if primary is not None and role == "passive":
            changed["primary"] = primary
        self._process = ForkedProcess(self._arguments({**self._options, **changed}), self.log)
        self._listen = parse_endpoint(self._first_line()["address"])

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """Send SIGTERM, wait for the orderly end, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def pause(self) -> None:
        """Send SIGSTOP: the kernel still accepts and acknowledges, and the process never answers."""
        self.process.pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self.kill()

    def _reap(self) -> int:
        code = self.process.wait()
        self.process.stdout.close()
        self._process = None
        return code

    def _arguments(self, options: Mapping[str, Any]) -> list[str]:
        arguments = []
        for name, value in options.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{option}" if value else f"--no-{option}")
                continue
            for each in value if isinstance(value, tuple) else (value,):
                arguments += [f"--{option}", str(each)]
        return arguments

    def _first_line(self) -> dict[str, Any]:
        stdout = self.process.stdout
        while select.select([stdout], [], [], _PATIENCE)[0] and (line := stdout.readline()):
            facts: dict[str, Any] = json.loads(line)
            if facts["event"] != "starting":
                return facts
        self.end()
        raise AssertionError(f"member {self.name} did not start: {self.log.read_text(errors='replace')}")

    # -- as its cluster-admin -----------------------------------------------------------------

    def status(self) -> MemberStatus:
        """Return its status, with its queues."""
        return self.ask(status_with_queues)

    def promote(self, *, at_least: int = 0) -> MemberStatus:
        """Promote it."""
        return self.ask(lambda admin: admin.promote(at_least=at_least))

    def follow(self, primary: Member, *, generation: int) -> MemberStatus:
        """Configure the address of the primary."""
        where = parse_endpoint(primary.url)
        return self.ask(lambda admin: admin.set_primary(where, generation=generation))

    def demote(self, successor: Member) -> MemberStatus:
        """Demote it; it redirects its clients to the other one."""
        return self.ask(lambda admin: admin.demote(parse_endpoint(successor.url)))

    def depth(self, queue: str) -> int:
        """Count the messages in a queue, including the messages that consumers hold."""
        queues = self.status().facts["queues"]
        return next((int(each["depth"]) for each in queues if each["name"] == queue), 0)

    def ask(self, question: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        """Send a request to its management node."""

        async def asking() -> T:
            credentials = Credentials(user=ADMIN_USER, password=ADMIN_PASSWORD)
            address = parse_endpoint(self.url)
            async with await AdminClient.connect(
                address, credentials, tls=self._tls, timeout=_PATIENCE
            ) as admin:
                return await question(admin)

        return _on_a_thread(asking())

    def bodies(self, queue: str) -> list[Any]:
        """Browse the bodies of a queue, in order."""
        return [message.body for message in self.messages(queue)]

    def messages(self, queue: str) -> list[Any]:
        """Browse the messages of a queue, in order."""

        async def browsing() -> list[Any]:
            found = []
            async with (
                aio.connect(self.url, credentials=ADMIN, ssl_context=self._tls) as connection,
                await connection.create_receiver(queue, browse=True, credit=1000) as receiver,
            ):
                for _ in range(depth):
                    delivery = await receiver.receive(timeout=_PATIENCE)
                    found.append(delivery.message)
                    await delivery.release()
            return found

        depth = self.depth(queue)
        return _on_a_thread(browsing())

    def wait_for(self, true: Callable[[MemberStatus], bool]) -> MemberStatus:
        """Poll its status until a condition is true."""
        end = time.monotonic() + _PATIENCE
        while not true(status := self.status()):
            if time.monotonic() > end:
                raise AssertionError(f"member {self.name}: {status}")
        return status


class Members:
    """Starts members, and ends the remaining ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._members: list[Member] = []

    def start(self, name: str, **arguments: Any) -> Member:
        """Start a new member; ``arguments`` are the parameters of ``Member``."""
        member = self.make(name, **arguments)
        member.start()
        return member

    def make(self, name: str, **arguments: Any) -> Member:
        """Make a new member without starting it."""
        member = Member(self._folder, name, **arguments)
        self._members.append(member)
        return member

    def logs(self) -> list[str]:
        """Return the standard error of every member."""
        return [member.log.read_text(errors="replace") for member in self._members if member.log.exists()]

    def pair(self, *, advertised: bool = False, **arguments: Any) -> tuple[Member, Member]:
        """Start a primary, and a passive member that knows it.

        :param advertised: whether both announce the members to clients in their Open.
        """
        where = free_addresses((Endpoint("127.0.0.1", 0), Endpoint("127.0.0.1", 0)))
        scheme = "amqps" if arguments.get("certificate") else "amqp"
        listed = tuple(f"{scheme}://{each.authority}" for each in where)
        if advertised:
            arguments["member"] = listed
        primary = self.start("primary", role="primary", listen=where[0].authority, **arguments)
        known = {"primary": primary.url, "generation": 1}
        passive = self.start("passive", listen=where[1].authority, **known, **arguments)
        return primary, passive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            for member in self._members:
                stack.callback(member.end)


def _context(certificate: Certificate | None, clients: Authority | None) -> ssl.SSLContext | None:
    """Return the admin's TLS context for a member with this certificate, which may require one as well."""
    if certificate is None:
        return None
    context = certificate.authority.client_context()
    if clients is not None:
        mine = clients.issue("admin@example.test")
        context.load_cert_chain(mine.chain, mine.key)
    return context


def _on_a_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whether or not an event loop runs here."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()
