"""The core of a connection factory, shared by both APIs: URL, options, credentials, topology.

A factory belongs to one event loop and one process.  Its connections share the topology, the
dials and the resolver (docs/internals/discovery.md, rule 8).
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypedDict

from proton import SSLDomain

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options, with_overrides
from haclient.cluster_url.url import ClusterURL
from haclient.cluster_url.url_error import ClusterURLError
from haclient.core.attempt import ConnectParams
from haclient.core.cluster import Cluster
from haclient.core.connection import ConnectionCore, Shared
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.topology import Topology
from haclient.engine import tls
from haclient.engine.sasl import check_available
from haclient.engine.settings import Settings
from haclient.errors import ConnectionClosed
from haclient.event_log import CallbackSubscription, LogSubscription, Subscription
from haclient.events import Closed, Event, GaveUp
from haclient.resolver.resolve import Resolver
from haclient.telemetry import settings as telemetry_settings
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.sink import EventCallback, Sink, callbacks


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password or token.  ``None`` for both means ANONYMOUS (or EXTERNAL)."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


class FactoryArguments(TypedDict, total=False):
    """The keyword arguments of ``connect`` and ``ConnectionFactory``.

    ``credentials``, ``ssl_context``, ``on_event``, ``rng`` and ``telemetry`` are explained at
    ``FactoryCore``; the others are the URL options of that name, as text or as values.
    """

    credentials: Credentials | CredentialsProvider | None
    ssl_context: ssl.SSLContext | None
    desired_capabilities: tuple[str, ...]
    on_event: EventCallback | Sink | Iterable[EventCallback | Sink] | None
    rng: random.Random | None
    telemetry: str | os.PathLike[str] | TelemetrySettings | None
    stagger: float | str
    max_dials: int | str
    attempt_timeout: float | str
    stable_after: float | str
    deadline: float | str | None
    startup_deadline: float | str | None
    max_attempts: int | str | None
    max_redirects: int | str
    redirects: str
    pushed_members: str
    backoff_base: float | str
    backoff_factor: float | str
    backoff_max: float | str
    backoff_strategy: str
    max_retry_after: float | str
    standby: str
    park_timeout: float | str
    dr: str | tuple[str, ...] | None
    dr_after: float | str
    heartbeat: float | str
    delivery: str
    duplicate_detection: bool | str
    window: int | str
    credit: int | str
    max_frame_size: int | str
    client_id: str | None
    vhost: str | None
    sasl_mechanisms: str | tuple[str, ...] | None
    sasl_plaintext: bool | str
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_verify: bool | str
    tls_server_name: str | None
    nameserver: str | None
    dns_timeout: float | str
    send_timeout: float | str | None
    close_timeout: float | str


CredentialsProvider = Callable[[], Credentials | Awaitable[Credentials]]


def _package_version() -> str:
    try:
        return version("haclient")
    except PackageNotFoundError:  # a source tree that was not installed
        return "0"


class FactoryCore:
    """The part of a connection factory that both APIs share.

    :param url: a cluster URL, parsed or not.
    :param credentials: overrides what the URL says; a callable is asked before each attempt
        (on a thread, unless it is a coroutine function).
    :param ssl_context: overrides the ``tls_*`` options; not for SASL EXTERNAL, see ``engine.tls``.
    :param desired_capabilities: what to ask of the peer in Open (AMQP 1.0 part 2, section 2.7.1).
    :param on_event: called with each event, on a thread of its own; a sink (``telemetry.sink``), or several.
    :param rng: the random source of backoff and SRV; for reproducible tests.
    :param telemetry: overrides the option of that name: a directory, or settings; empty for off.
    :param options: any URL option by its name; they override the URL.
    :raises ClusterURLError: when the URL or an option is wrong.
    """

    def __init__(
        self,
        url: str | ClusterURL,
        *,
        credentials: Credentials | CredentialsProvider | None = None,
        ssl_context: ssl.SSLContext | None = None,
        desired_capabilities: tuple[str, ...] = (),
        on_event: EventCallback | Sink | Iterable[EventCallback | Sink] | None = None,
        rng: random.Random | None = None,
        telemetry: str | os.PathLike[str] | TelemetrySettings | None = None,
        **options: Any,
    ) -> None:
        self.url = ClusterURL.parse(url) if isinstance(url, str) else url
        if telemetry is not None:
            given = telemetry.directory if isinstance(telemetry, TelemetrySettings) else telemetry
            options["telemetry"] = given
        self.options: Options = with_overrides(self.url.options, **options)
        check_available(self.options.sasl_mechanisms or ())
        self.client_id = self.options.client_id or f"haclient-{uuid.uuid4()}"
        self.rng = rng or random.Random()
        self.desired_capabilities = desired_capabilities
        self._credentials = credentials
        self._params_provider = _ParamsProvider(self, ssl_context)
        self._subscriptions: dict[Subscription, int | None] = {LogSubscription(): None}
        self.redactor = self._make_redactor()
        for callback in callbacks(on_event, self.redactor):
            self._subscriptions[CallbackSubscription(callback)] = None
        self._recorder = self._make_recorder(telemetry if isinstance(telemetry, TelemetrySettings) else None)
        if self._recorder is not None:
            self._subscriptions[self._recorder] = None
        self._shared: Shared | None = None
        self._numbers = 0
        self._closed = False
        self._connections: dict[ConnectionCore, None] = {}

    @property
    def topology(self) -> Topology | None:
        """What is known about the cluster; ``None`` before the first connect."""
        return self._shared.cluster.topology if self._shared else None

    def connection(self) -> ConnectionCore:
        """A new connection, not opened yet.  Must be called on the event loop."""
        if self._closed:
            raise ConnectionClosed("the factory is closed")
        self._numbers += 1
        core = ConnectionCore(self.shared(), self._numbers)
        self._connections[core] = None
        core.on_closed = lambda: self._connections.pop(core, None)
        return core

    def shared(self) -> Shared:
        """The state that the connections share, also for a caller without a connection; on the event loop."""
        if self._shared is None:
            self._shared = self._share()
        return self._shared

    async def close(self) -> None:
        """Close every connection, then everything they shared."""
        self._closed = True
        await asyncio.gather(*(core.close() for core in tuple(self._connections)))
        if self._shared is not None:
            await self._shared.cluster.close()
            self._shared = None
        for subscription in self._subscriptions:
            subscription.close()

    def subscribe(self, subscription: Subscription, connection: int | None) -> None:
        """Send the events of one connection (or of all, with ``None``) to a subscription."""
        if connection is not None and all(core.number != connection for core in self._connections):
            subscription.close()
        else:
            self._subscriptions[subscription] = connection

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop sending events to it."""
        self._subscriptions.pop(subscription, None)
        subscription.close()

    def credentials_for(self, endpoint: Endpoint) -> Credentials:
        """The credentials in the URL for an endpoint.  Those of one seed never go to another."""
        topology = self.topology
        for seed in self.url.seeds:
            addresses = topology.addresses(seed.endpoint) if topology else ()
            if endpoint == seed.endpoint or endpoint in addresses:
                return _seed_credentials(seed)
        everywhere = {_seed_credentials(seed) for seed in self.url.seeds}
        return everywhere.pop() if len(everywhere) == 1 else Credentials()

    async def ask_credentials(self, endpoint: Endpoint) -> tuple[Credentials, bool]:
        """The credentials for one attempt, and whether another attempt may get others."""
        given = self._credentials
        if given is None:
            return self.credentials_for(endpoint), False
        if isinstance(given, Credentials):
            return given, False
        if inspect.iscoroutinefunction(given):
            return await given(), True
        asked = await asyncio.to_thread(given)
        return (await asked if inspect.isawaitable(asked) else asked), True

    def redact(self, credentials: Credentials) -> None:
        """Keep these credentials out of telemetry."""
        self.redactor.add(credentials.user, credentials.password)

    def _make_recorder(self, given: TelemetrySettings | None) -> Recorder | None:
        settings = telemetry_settings.resolve(given, self.options.telemetry)
        if settings is None:
            return None
        return Recorder(
            settings,
            self.redactor,
            backoff_max=self.options.backoff_max,
            backoff_strategy=self.options.backoff_strategy,
        )

    def _make_redactor(self) -> Redactor:
        seeds = self.url.seeds
        redactor = Redactor((self.client_id, *(seed.endpoint.host for seed in seeds)))
        for seed in seeds:
            known = _seed_credentials(seed)
            redactor.add(known.user, known.password)
        return redactor

    def _publish(self, connection: int, event: Event) -> None:
        for subscription, wanted in tuple(self._subscriptions.items()):
            if wanted is None or wanted == connection:
                subscription.put(event)
            if wanted == connection and isinstance(event, Closed | GaveUp):
                self.unsubscribe(subscription)

    def _share(self) -> Shared:
        options = self.options
        resolver = Resolver(nameserver=options.nameserver, timeout=options.dns_timeout, rng=self.rng)
        written = any(seed.user is not None for seed in self.url.seeds)
        return Shared(
            options=options,
            cluster=Cluster(self.url, options.policy(), resolver),
            params_provider=self._params_provider.params_for,
            publish=self._publish,
            client_id=self.client_id,
            credentials=written or self._credentials is not None,
            rng=self.rng,
        )


class _ParamsProvider:
    """Computes, just before an attempt, how to connect to its endpoint."""

    def __init__(self, factory: FactoryCore, context: ssl.SSLContext | None) -> None:
        self._factory = factory
        self._context = context
        if context is not None and self._is_external():
            msg = "option 'sasl_mechanisms': EXTERNAL takes tls_ca, tls_cert and tls_key, not an ssl_context"
            raise ClusterURLError(msg, "sasl_mechanisms")
        if context is None and (factory.options.tls_ca or factory.options.tls_cert):
            self._context = self._load()  # now, for a wrong path is an error of the caller's
        self._domain: SSLDomain | None = None
        self._refused: dict[Endpoint, tuple[Credentials, str | None]] = {}

    async def params_for(self, endpoint: Endpoint) -> ConnectParams:
        """Settings, TLS and credentials for one attempt."""
        try:
            credentials, fresh = await self._factory.ask_credentials(endpoint)
            self._factory.redact(credentials)
        except Exception as error:  # noqa: BLE001
            # The error of the application's callable may hold a secret: only its type is reported.
            detail = f"no credentials: {type(error).__name__} in the application's callable"
            refusal = Failure(kind=FailureReason.AUTHENTICATION_TEMPORARY, detail=detail)
            return ConnectParams(self._settings(endpoint, Credentials()), refusal=refusal)
        before, mechanism = self._refused.get(endpoint, (None, None))
        if fresh and before == credentials:
            detail = "the credentials that were refused here have not changed"
            refusal = Failure(kind=FailureReason.AUTHENTICATION, detail=detail, mechanism=mechanism)
            return ConnectParams(self._settings(endpoint, credentials), refusal=refusal)
        return ConnectParams(
            self._settings(endpoint, credentials),
            tls=self._tls(endpoint),
            fresh=fresh,
            on_refused=lambda mechanism: self._refused.update({endpoint: (credentials, mechanism)}),
        )

    def _settings(self, endpoint: Endpoint, credentials: Credentials) -> Settings:
        options = self._factory.options
        name = options.tls_server_name or endpoint.tls_name
        return Settings(
            container_id=self._factory.client_id,
            hostname=options.vhost or endpoint.tls_name,
            heartbeat=options.heartbeat,
            max_frame_size=options.max_frame_size,
            user=credentials.user,
            password=credentials.password,
            mechanisms=options.sasl_mechanisms or (),
            plaintext=options.sasl_plaintext or endpoint.tls,
            desired_capabilities=self._factory.desired_capabilities,
            properties={"product": "haclient", "version": _VERSION},
            tls_domain=self._external(endpoint),
            tls_name=name,
        )

    def _files(self) -> tls.TlsFiles:
        options = self._factory.options
        return tls.TlsFiles(
            ca=options.tls_ca, certificate=options.tls_cert, key=options.tls_key, verify=options.tls_verify
        )

    def _is_external(self) -> bool:
        return self._factory.options.sasl_mechanisms == ("EXTERNAL",)

    def _tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if not endpoint.tls or self._is_external():
            return None
        if self._context is None:
            self._context = self._load()
        return self._context

    def _load(self) -> ssl.SSLContext:
        try:
            return tls.client_context(self._files())
        except tls.TlsFileError as error:
            option = {"ca": "tls_ca", "certificate": "tls_cert"}[error.field]
            raise ClusterURLError(f"option {option!r}: {error}", option) from error

    def _external(self, endpoint: Endpoint) -> SSLDomain | None:
        if not endpoint.tls or not self._is_external():
            return None
        if self._domain is None:
            self._domain = tls.external_domain(self._files())
        return self._domain


_VERSION = _package_version()


def _seed_credentials(seed: Any) -> Credentials:
    return Credentials(seed.user, seed.password.reveal() if seed.password is not None else None)
