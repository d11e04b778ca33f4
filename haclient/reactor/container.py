"""``proton.reactor.Container``, which applications start and configure.

Handlers, links, options and ``connect.json`` are proton's own code.  Connections, transactions, listeners,
timers and selectables are made for the event loop of ``loop.Reactor``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, cast

from proton import Endpoint, SSLDomain, Terminus, Url, symbol
from proton._reactor import SessionPerConnection

from haclient.error_catalog.arguments import check_text
from haclient.reactor.addresses import cluster, split_path
from haclient.reactor.connect_options import ConnectOptions
from haclient.reactor.connectors import FailoverConnector, PlainConnector
from haclient.reactor.endpoints.binding import Binding
from haclient.reactor.endpoints.endpoint import Connection
from haclient.reactor.endpoints.links import Receiver, Sender
from haclient.reactor.endpoints.transactions import CoordinatorHandler, Transaction
from haclient.reactor.listener import Acceptor
from haclient.reactor.loop import Reactor
from haclient.reactor.proton_events import Event
from haclient.reactor.timers import Task


class Container(Reactor):
    """Handlers, connections and timers on one event loop; see ``proton.reactor.Container``."""

    def connect(
        self,
        url: str | Url | None = None,
        urls: Iterable[str | Url] | None = None,
        address: str | Url | Iterable[str | Url] | None = None,
        handler: Any = None,
        reconnect: Any = None,
        heartbeat: float | None = None,
        ssl_domain: SSLDomain | None = None,
        **kwargs: Any,
    ) -> Connection:
        """Connect; see ``proton.reactor.Container.connect`` for everything else.

        :param url: proton's URL, or a cluster URL.  Without any address ``connect.json`` is read.
        :param address: a URL, or several.
        :param reconnect: ``False`` for a plain connection; otherwise it survives failovers.  The delays of a
            ``Backoff`` or a list are used unchanged, and the search ends with them.  Otherwise the delays are
            jittered, as the options define.
        :param kwargs: proton's, and the options of a cluster URL by name.
        :raises ClusterURLError: when a cluster URL or an option is wrong.
        """
        if address is not None and url is None and urls is None:
            urls = [address] if isinstance(address, str | Url) else address
        listed: Any = None if urls is None else list(urls)
        made: Any = super().connect(
            url=url,
            urls=listed,
            handler=handler,
            reconnect=reconnect,
            heartbeat=heartbeat,
            ssl_domain=ssl_domain,
            **kwargs,
        )
        connection: Connection = made
        return connection

    def _connect(
        self,
        url: Any = None,
        urls: Any = None,
        handler: Any = None,
        reconnect: Any = None,
        heartbeat: Any = None,
        ssl_domain: SSLDomain | None = None,
        **kwargs: Any,
    ) -> Connection:
        user, password = kwargs.get("user", self.user), kwargs.get("password", self.password)
        for argument, text in (
            ("user", user),
            ("password", password),
            ("virtual_host", kwargs.get("virtual_host")),
        ):
            check_text(argument, text, optional=True)
        members = cluster([url] if url else urls or (), user, password)
        options = ConnectOptions.of(self, kwargs, heartbeat=heartbeat, ssl_domain=ssl_domain).with_tls(
            self, members
        )
        connection = self.connection(handler)
        connection.container = options.container_id
        if options.virtual_host != "":
            connection.hostname = options.virtual_host or members.seeds[0].endpoint.host
        connection.offered_capabilities = kwargs.get("offered_capabilities")
        connection.desired_capabilities = kwargs.get("desired_capabilities")
        connection.properties = kwargs.get("properties")
        binding = cast("Binding", connection._binding)
        if reconnect is False:
            if "credentials" in options.options:
                raise ValueError("credentials: reconnect=False takes user and password")
            binding.connector = PlainConnector(binding, members, options)
        else:
            binding.connector = FailoverConnector(binding, members, options.with_failover(members, reconnect))
        connection._session_policy = SessionPerConnection()
        connection.open()
        return connection

    def connection(self, handler: Any = None) -> Connection:
        """Return a connection that is not opened yet; without ``connect`` it is a plain one."""
        binding = Binding(self)
        connection = binding.connection
        if handler is not None:
            connection.handler = handler
        connection._reactor = self
        self.wake(binding)
        return connection

    def dial(self, binding: Binding) -> None:
        """Dial for a connection that the application opened."""
        if binding.connector is None:
            connection = binding.connection
            members = cluster([connection.url or Url(connection.hostname)], self.user, self.password)
            options = ConnectOptions.of(self, {"container_id": connection.container}).with_tls(self, members)
            binding.connector = PlainConnector(binding, members, options)
        self.hold(binding)
        binding.connector.start()

    def create_sender(self, context: Any, target: str | None = None, *args: Any, **kwargs: Any) -> Sender:
        """Create a sender; see ``proton.reactor.Container.create_sender``.

        :param context: a connection, a session, or a URL (also a cluster URL) to connect to.
        """
        _check_names(target, *args[:2], kwargs.get("source"), kwargs.get("name"))
        context, path = self._resolve(context)
        made: Any = super().create_sender(context, target or path, *args, **kwargs)
        sender: Sender = made
        return sender

    def create_receiver(self, context: Any, source: str | None = None, *args: Any, **kwargs: Any) -> Receiver:
        """Create a receiver; see ``proton.reactor.Container.create_receiver``."""
        _check_names(source, *args[:2], kwargs.get("target"), kwargs.get("name"))
        context, path = self._resolve(context)
        made: Any = super().create_receiver(context, source or path, *args, **kwargs)
        receiver: Receiver = made
        return receiver

    def declare_transaction(
        self,
        context: Any,
        handler: Any = None,
        settle_before_discharge: bool = False,  # noqa: FBT001, FBT002 - proton's signature
    ) -> Transaction:
        """Declare a transaction; see ``proton.reactor.Container.declare_transaction``.

        :param context: its connection, or a session.
        :param handler: a ``proton.handlers.TransactionHandler``.
        :returns: the transaction, usable from ``on_transaction_declared`` until its connection ends: see
            ``transactions``.
        """
        link = getattr(context, "_txn_ctrl", None)
        if link is None or link.state & (Endpoint.LOCAL_CLOSED | Endpoint.REMOTE_CLOSED):
            # proton may send a new Attach before the Detach, so the second link has another name.
            name = "txn-ctrl" if link is None else f"txn-ctrl-{uuid.uuid4()}"
            link = self.create_sender(context, None, name=name, handler=CoordinatorHandler(handler))
            link.target.type = Terminus.COORDINATOR
            link.target.capabilities.put_object(symbol("amqp:local-transactions"))
            context._txn_ctrl = link
        return Transaction(link, handler, settle_before_discharge)

    def _resolve(self, context: Any) -> tuple[Any, str | None]:
        if not isinstance(context, str | Url):
            return context, None
        address, path = split_path(context)
        return self.connect(url=address), path

    def schedule(self, delay: float, handler: Any) -> Task:
        """Call the handler's ``on_timer_task`` after ``delay`` seconds."""
        task = Task(self, delay, handler, self._fire)
        self.hold(task)
        return task

    def _fire(self, task: Task) -> None:
        self.post(Event(self, Event.TIMER_TASK, task))
        self.release(task)

    def acceptor(self, host: str, port: Any, handler: Any = None) -> Any:
        """Return a listening socket; ``listen`` takes a URL instead.

        :raises OSError: when it cannot be bound.
        """
        return Acceptor(self, host, int(port), handler)


def _check_names(*names: object) -> None:
    """Refuse a link's names and addresses that C would truncate: they would denote another node."""
    for name in names:
        check_text("name or address", name, optional=True)
