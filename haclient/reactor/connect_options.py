"""Translates the arguments of ``connect`` into settings of the engine and options of a cluster URL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from proton import SSLDomain

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.cluster_url.url import ClusterURL
from haclient.engine.settings import Settings
from haclient.engine.tls import TlsFiles, client_context
from haclient.reactor.reconnecting import fixed_delays
from haclient.reactor.ssl_domain import for_connecting
from haclient.retry.backoff import FixedDelays

_DEFAULTS = Options()
_OPTIONS = frozenset(each.name for each in fields(Options)) - {"max_frame_size"} | {"credentials"}
# If one of these is given, the options configure TLS instead of the container's domain.
_TLS_OPTIONS = frozenset({"tls_ca", "tls_cert", "tls_key", "tls_verify", "tls_server_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The arguments of ``connect``, apart from the addresses.

    :param heartbeat: seconds; ``None`` is off for a plain connection, and the URL options' default with
        failover.
    :param virtual_host: the host name in Open; empty for none, ``None`` for the address's.
    :param mechanisms: allowed SASL mechanisms; empty means any safe one.
    :param properties: the only properties of the Open; ``None`` for haclient's.
    :param options: options of a cluster URL by name, and ``credentials`` as ``haclient.connect`` has them.
    :param delays: the delays of ``reconnect``; ``None`` for the jittered ones of the options.
    """

    container_id: str
    heartbeat: float | None = None
    virtual_host: str | None = None
    ssl_domain: SSLDomain | None = None
    sni: str | None = None
    max_frame_size: int | None = None
    mechanisms: tuple[str, ...] = ()
    sasl: bool = True
    plaintext: bool = True
    properties: Mapping[str, Any] | None = None
    offered: tuple[str, ...] = ()
    desired: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    delays: FixedDelays | None = None

    def refine(self, settings: Settings, endpoint: Endpoint) -> Settings:
        """Return the settings of an attempt at an endpoint, changed as these arguments ask."""
        mechanisms = self.mechanisms or settings.mechanisms
        if endpoint.tls and not mechanisms and settings.user is None and not settings.bearer:
            # As in proton: a certificate in the domain authenticates the client if the peer asks for one.
            mechanisms = ("EXTERNAL", "ANONYMOUS")
        return replace(
            settings,
            hostname=settings.hostname if self.virtual_host is None else self.virtual_host or None,
            mechanisms=mechanisms,
            sasl=self.sasl,
            plaintext=(settings.plaintext and self.plaintext) or endpoint.tls,
            properties=settings.properties if self.properties is None else self.properties,
            offered_capabilities=settings.offered_capabilities + self.offered,
            desired_capabilities=settings.desired_capabilities + self.desired,
            shows_certificate=endpoint.tls and self.shows_certificate(settings),
            tls_name=self.sni or self._tls_name(settings.tls_name, endpoint),
        )

    def _tls_name(self, given: str | None, endpoint: Endpoint) -> str | None:
        """Return the virtual host, unless the options name another, or it can be no name of a host."""
        if not self.virtual_host or given != endpoint.tls_name or not _is_host(self.virtual_host):
            return given
        return self.virtual_host

    def shows_certificate(self, settings: Settings) -> bool:
        """Return whether TLS has a certificate of this client."""
        if self.ssl_domain is None:
            return settings.shows_certificate
        return for_connecting(self.ssl_domain).credentials is not None

    def client_context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Return the TLS of the domain for an endpoint; ``None`` without TLS or domain."""
        if self.ssl_domain is None or not endpoint.tls:
            return None
        return for_connecting(self.ssl_domain).context()

    def tls_server_name(self, url: ClusterURL) -> str | None:
        """Return the name of the option, for a connection without failover."""
        return self.options.get("tls_server_name") or url.options.tls_server_name

    def plain_context(self, url: ClusterURL, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Return the TLS of a connection without failover: of the domain, or of the options.

        :raises haclient.engine.tls.TlsFileError: if a file cannot be read.
        """
        if self.ssl_domain is not None or not endpoint.tls:
            return self.client_context(endpoint)
        named = {name: self.options[name] for name in _TLS_OPTIONS & set(self.options)}
        given = replace(url.options, **named)
        files = TlsFiles(
            ca=given.tls_ca, certificate=given.tls_cert, key=given.tls_key, verify=given.tls_verify
        )
        return client_context(files)

    @classmethod
    def of(
        cls,
        container: Any,
        given: Mapping[str, Any],
        *,
        heartbeat: float | None = None,
        ssl_domain: SSLDomain | None = None,
    ) -> ConnectOptions:
        """Read the arguments of ``connect`` and the attributes of its container.

        :raises TypeError: for a domain that a connection cannot use.
        :raises ValueError: for an ``sni`` that is no name.
        """
        if ssl_domain is not None:
            for_connecting(ssl_domain)
        if (sni := given.get("sni")) and not _is_host(sni):
            raise ValueError(f"sni={sni!r} is not the name of a host")
        mechanisms = given.get("allowed_mechs", container.allowed_mechs) or ()
        return cls(
            container_id=given.get("container_id", container.container_id) or container.container_id,
            heartbeat=heartbeat,
            virtual_host=given.get("virtual_host"),
            ssl_domain=ssl_domain,
            sni=given.get("sni"),
            max_frame_size=given.get("max_frame_size"),
            mechanisms=tuple(mechanisms.split() if isinstance(mechanisms, str) else mechanisms),
            sasl=bool(given.get("sasl_enabled", container.sasl_enabled)),
            plaintext=bool(given.get("allow_insecure_mechs", container.allow_insecure_mechs)),
            properties=_properties(given.get("properties")),
            offered=tuple(str(name) for name in given.get("offered_capabilities") or ()),
            desired=tuple(str(name) for name in given.get("desired_capabilities") or ()),
            options={name: value for name, value in given.items() if name in _OPTIONS},
        )

    def with_tls(self, container: Any, url: ClusterURL) -> ConnectOptions:
        """Return a copy with the container's TLS if an address needs TLS and no argument configures it."""
        wanted = self.ssl_domain is None and any(seed.endpoint.tls for seed in url.seeds)
        if not wanted or _TLS_OPTIONS & (_changed(url.options) | set(self.options)):
            return self
        return replace(self, ssl_domain=container.ssl.client)

    def with_failover(self, url: ClusterURL, reconnect: Any) -> ConnectOptions:
        """Return a copy with the options that a factory for ``url`` needs."""
        options: dict[str, Any] = {
            "client_id": self.container_id,
            "vhost": self.virtual_host or None,
            "heartbeat": self.heartbeat,
            "max_frame_size": self.max_frame_size,
        }
        known: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if url.options.startup_deadline == _DEFAULTS.startup_deadline:
            known["startup_deadline"] = None  # proton's container never gives up
        return replace(self, options={**known, **self.options}, delays=fixed_delays(reconnect))


def _properties(given: Mapping[Any, Any] | None) -> dict[str, Any] | None:
    return None if given is None else {str(key): value for key, value in given.items()}


def _changed(options: Options) -> set[str]:
    return {name for name in _TLS_OPTIONS if getattr(options, name) != getattr(_DEFAULTS, name)}


def _is_host(name: str) -> bool:
    """Return whether TLS can ask for a name."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True
