"""The parameters to connect to an endpoint, computed just before an attempt: settings, TLS, credentials.

Rules
-----
* Credentials of one seed of the URL are never sent to another one.
* If a member lets the client use SCRAM, its cluster supports SCRAM.  From then on no member of that site gets
  PLAIN without TLS: an impostor could ask for it.
* A callable is asked before each attempt; credentials that an endpoint refused are not sent there again.
* The error of the application's callable may hold a secret: only its type is reported.  During the first
  connect ``core.connection`` raises it unchanged, unless it is an ``OSError``.
"""

from __future__ import annotations

import inspect
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import Options
from haclient.cluster_url.seed import Credentials, Seed
from haclient.cluster_url.url import ClusterURL
from haclient.core.attach.target import target_capabilities
from haclient.core.attempt import ConnectParams
from haclient.discovery.evidence import Failure, FailureReason
from haclient.discovery.topology import Topology
from haclient.engine import tls
from haclient.engine.sasl.daemon_threads import DaemonThreads
from haclient.engine.sasl.token import Token
from haclient.engine.settings import Settings, is_scram
from haclient.error_catalog.arguments import check_text
from haclient.telemetry.redact import Redactor
from haclient.version import package_version

# ``("user", "password")`` is short for ``Credentials``.
GivenCredentials = Credentials | Token | tuple[str | None, str | None]
CredentialsProvider = Callable[[], GivenCredentials | Awaitable[GivenCredentials]]


def as_credentials(given: object, origin: str = "credentials") -> Credentials | Token:
    """Return a pair as ``Credentials``, and a token as it is.

    :param origin: source of the pair, for the error.
    :raises TypeError: for anything else; shows only the type, because the value may be a password.
    """
    if isinstance(given, Token):
        return given
    if isinstance(given, Credentials):
        user, password = given.user, given.password
    elif isinstance(given, tuple) and len(given) == len(_FIELDS):
        user, password = given
    else:
        expected = "Credentials, Token or (user, password)"
        raise TypeError(f"{origin}: expected {expected}, not {type(given).__name__}")
    for name, text in zip(_FIELDS, (user, password), strict=True):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{origin}: the {name} must be text, not {type(text).__name__}")
        check_text(f"{origin}: the {name}", text, optional=True)
    return Credentials(user=user, password=password)


_FIELDS = ("user", "password")


def choose_credentials(
    user: str | None, password: str | None, credentials: GivenCredentials | CredentialsProvider | None
) -> Credentials | Token | CredentialsProvider | None:
    """Return the credentials in the arguments of ``connect``; ``None`` for the URL's credentials.

    :raises ClusterURLError: for two arguments that set the same thing, and for a password without a user.
    :raises TypeError: for an argument of an invalid type.
    """
    if credentials is not None and not (user is None and password is None):
        given = "user" if password is None else "password"
        raise ClusterURLError(f"argument {given!r}: credentials sets the same; give one of them", given)
    if user is not None:
        return as_credentials((user, password), "user and password")
    if password is not None:
        raise ClusterURLError("argument 'password': there is no user that it belongs to", "password")
    return credentials if credentials is None or callable(credentials) else as_credentials(credentials)


def seed_credentials(seed: Seed) -> Credentials:
    """Return the URL's credentials for one seed."""
    return Credentials(user=seed.user, password=seed.password.reveal() if seed.password is not None else None)


class CredentialsSource:
    """Source of the credentials for an endpoint: the application's, or the URL's.

    :param given: the argument of the factory, which overrides the URL.
    :param topology: returns the known state of the cluster.
    """

    def __init__(
        self,
        url: ClusterURL,
        given: Credentials | Token | CredentialsProvider | None,
        topology: Callable[[], Topology | None],
    ) -> None:
        self._url = url
        self._given = given
        self._topology = topology
        self._threads = DaemonThreads("haclient credentials")

    def is_dr(self, endpoint: Endpoint) -> bool | None:
        """Return whether the endpoint is a member of the second site; ``None`` if neither site lists it."""
        topology = self._topology()
        return topology.is_dr(endpoint) if topology is not None else None

    def is_trusted(self, endpoint: Endpoint, name: str) -> bool:
        """Return whether a certificate with this name proves that the peer is a member."""
        topology = self._topology()
        return topology is not None and topology.is_trusted(replace(endpoint, host=name))

    @property
    def for_unlisted(self) -> bool:
        """Return whether endpoints that the URL does not list get credentials."""
        return self._given is not None or self._of_every_seed().user is not None

    async def ask(self, endpoint: Endpoint) -> tuple[Credentials | Token, bool]:
        """Return the credentials for one attempt, and whether the next attempt may get others."""
        given = self._given
        if given is None:
            return self._from_url(endpoint), False
        if isinstance(given, Credentials | Token):
            return given, False
        asked = (
            given() if inspect.iscoroutinefunction(given) else await self._threads.run(lambda: _call(given))
        )
        return as_credentials(await asked if inspect.isawaitable(asked) else asked, _RETURNED), True

    def _from_url(self, endpoint: Endpoint) -> Credentials:
        topology = self._topology()
        for seed in self._url.seeds:
            addresses = topology.addresses(seed.endpoint) if topology else ()
            if endpoint == seed.endpoint or endpoint in addresses:
                return seed_credentials(seed)
        return self._of_every_seed()

    def _of_every_seed(self) -> Credentials:
        everywhere = {seed_credentials(seed) for seed in self._url.seeds}
        return everywhere.pop() if len(everywhere) == 1 else Credentials()


# Seconds until a refused token is sent again: it may become valid, when its key is published or its claim nbf
# is reached.  Brokers read published keys about once a minute.
_TOKEN_REFUSED_FOR = 60.0
# Origin for the error if the credentials function returns anything else.
_RETURNED = "the credentials function returned something else"


def _secret(credentials: Credentials | Token) -> str | None:
    return credentials.value if isinstance(credentials, Token) else credentials.password


def _call(function: CredentialsProvider) -> GivenCredentials | Awaitable[GivenCredentials]:
    try:
        return function()
    except StopIteration as error:  # no future can hold it
        raise RuntimeError("the credentials function raised StopIteration") from error


class EndpointParams:
    """Makes the ``ConnectParams`` of every attempt of a factory.

    :param client_id: returns the container id, which changes after a fork.
    :param context: replaces the ``tls_*`` options.
    :param redactor: learns the password or token of each attempt before it is used.
    :raises ClusterURLError: if a TLS option is wrong.
    """

    def __init__(
        self,
        options: Options,
        *,
        client_id: Callable[[], str],
        desired_capabilities: tuple[str, ...],
        source: CredentialsSource,
        context: ssl.SSLContext | None,
        redactor: Redactor,
    ) -> None:
        self._options = options
        self._client_id = client_id
        self._desired_capabilities = target_capabilities(desired_capabilities, "desired_capabilities")
        self._source = source
        self._redactor = redactor
        self._context = context
        self._is_own_context = context is not None
        if context is None and (options.tls_ca or options.tls_cert):
            self._context = self._load()  # load now, so that the caller gets the error of a wrong path
        self._refused: dict[Endpoint, tuple[Credentials | Token, str | None, float]] = {}
        self._scram_sites: set[bool | None] = set()

    async def params_for(self, endpoint: Endpoint) -> ConnectParams:
        """Return settings, TLS and credentials for one attempt."""
        try:
            credentials, fresh = await self._source.ask(endpoint)
            expires_at = credentials.expiry if isinstance(credentials, Token) else None
            secret = _secret(credentials)
            self._redactor.add(credentials.user, secret, is_supplied=fresh)
        except Exception as error:  # noqa: BLE001
            detail = f"no credentials: {type(error).__name__} in the application's callable"
            refusal = Failure(kind=FailureReason.AUTHENTICATION_TEMPORARY, detail=detail)
            return ConnectParams(self._settings(endpoint, Credentials()), refusal=refusal, error=error)
        before, mechanism, at = self._refused.get(endpoint, (None, None, 0.0))
        stays_refused = not isinstance(credentials, Token) or time.monotonic() - at < _TOKEN_REFUSED_FOR
        if fresh and before == credentials and stays_refused:
            detail = "the credentials that were refused here have not changed"
            refusal = Failure(
                kind=FailureReason.AUTHENTICATION, detail=detail, mechanism=mechanism, may_change=True
            )
            return ConnectParams(self._settings(endpoint, credentials), refusal=refusal)
        return ConnectParams(
            self._settings(endpoint, credentials),
            tls=self._tls(endpoint),
            verified=self._is_verified(endpoint),
            fresh=fresh,
            expires_at=expires_at,
            plain_barred=not endpoint.tls and self._is_scram_known(endpoint),
            on_mechanism=lambda mechanism: self._note_mechanism(endpoint, mechanism),
            on_refused=lambda mechanism: self._refused.update(
                {endpoint: (credentials, mechanism, time.monotonic())}
            ),
        )

    @property
    def shows_certificate(self) -> bool:
        """Return whether a TLS peer may see a client certificate; assumed for the application's context."""
        return self._options.tls_cert is not None or self._is_own_context

    def _settings(self, endpoint: Endpoint, credentials: Credentials | Token) -> Settings:
        options = self._options
        return Settings(
            container_id=self._client_id(),
            hostname=options.vhost or endpoint.tls_name,
            heartbeat=options.heartbeat,
            max_frame_size=options.max_frame_size,
            user=credentials.user,
            password=_secret(credentials),
            bearer=isinstance(credentials, Token),
            mechanisms=options.sasl_mechanisms or (),
            plaintext=endpoint.tls or (options.sasl_plaintext and not self._is_scram_known(endpoint)),
            desired_capabilities=self._desired_capabilities,
            properties={"product": "haclient", "version": package_version()},
            tls_name=options.tls_server_name or endpoint.tls_name,
            shows_certificate=endpoint.tls and self.shows_certificate,
        )

    def _note_mechanism(self, endpoint: Endpoint, mechanism: str | None) -> None:
        if mechanism is not None and is_scram(mechanism):
            self._scram_sites.add(self._source.is_dr(endpoint))

    def _is_scram_known(self, endpoint: Endpoint) -> bool:
        """Return whether a member of the same, or possibly the same, site has offered SCRAM."""
        is_dr, sites = self._source.is_dr(endpoint), self._scram_sites
        return bool(sites) if is_dr is None else not sites.isdisjoint({is_dr, None})

    def _files(self) -> tls.TlsFiles:
        options = self._options
        return tls.TlsFiles(
            ca=options.tls_ca, certificate=options.tls_cert, key=options.tls_key, verify=options.tls_verify
        )

    def _tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if not endpoint.tls:
            return None
        if self._context is None:
            self._context = self._load()
        return self._context

    def _is_verified(self, endpoint: Endpoint) -> bool:
        """Return whether TLS verifies that the peer is a member.

        An unchecked name in the certificate proves nothing, and neither does the name of an unknown host.  A
        redirect may lead to any host, and anyone can get a certificate for his own name.
        """
        name = endpoint.tls_name
        if self._options.tls_server_name is None and not self._source.is_trusted(endpoint, name):
            return False
        context = self._tls(endpoint)
        return context is not None and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname

    def _load(self) -> ssl.SSLContext:
        try:
            return tls.client_context(self._files())
        except tls.TlsFileError as error:
            option = {"ca": "tls_ca", "certificate": "tls_cert"}[error.field]
            raise ClusterURLError(f"option {option!r}: {error}", option) from error
