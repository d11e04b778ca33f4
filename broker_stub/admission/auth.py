"""Authentication and authorization: the user of a client, and the user's permissions.

Rules
-----
* SASL proves the user. Names are written as in the file of users, or in the claim of a token.
* A token never makes a client the cluster-admin or a link user (``broker_stub.tokens``).
* If users authenticate by password, clients without a name are admitted only if that is configured.
* A client that skips SASL is not authenticated: unless anonymous clients are admitted, it gets no Open.
* ANONYMOUS has no name, and is never the cluster-admin, whatever name the client sends with it.
* A passive member serves only the cluster-admin. It redirects all other clients to the primary if it knows
  the primary, else it refuses them (AMQP 1.0 part 2, sections 2.8.15, 2.8.16). A property of the Open reports
  at once that the connection is refused.
* Only the cluster-admin may use ``$management``.
* If users authenticate, only the cluster-admin and the link users receive site events, and only the
  cluster-admin sends them. If no client has a name, every client may do both.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_stub.admission.user_file import DEFAULT_ADMIN
from haclient.engine.sasl import channel_binding
from haclient.engine.sasl.mechanisms import BEARER, CLAIMS
from haclient.engine.sasl.server_mechanisms import Login
from haclient.engine.sasl.users import DIGESTS, Tokens, Users
from haclient.engine.settings import SaslServer
from haclient.engine.tls import TlsFiles, own_certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """The authentication of users, and the name of the cluster-admin.

    :param users: the users with a password; ``None`` if no user has one.
    :param tokens: the tokens that authenticate; ``None`` if none does.
    :param claims: true if a client may log in without a name, and put a token into ``$cbs`` later.
    :param anonymous: true if clients may connect without a name; ``None`` to allow it only without ``users``.
    :param external: true if a TLS client certificate authenticates.
    :param link_users: users that may receive the events of this site's queues, besides the cluster-admin.
    """

    admin: str = DEFAULT_ADMIN
    users: Users | None = None
    tokens: Tokens | None = None
    claims: bool = False
    anonymous: bool | None = None
    external: bool = False
    link_users: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self._mechanisms():
            raise ValueError("nobody could connect: there are neither users, tokens nor certificates")

    @property
    def lets_anonymous_in(self) -> bool:
        """Return whether clients may connect without a name."""
        return self.users is None and self.tokens is None if self.anonymous is None else self.anonymous

    @property
    def claimable(self) -> Tokens | None:
        """Return the tokens that clients may put into ``$cbs``; ``None`` if there is no such node."""
        return self.tokens if self.claims else None

    def must_claim(self, user: str | None) -> bool:
        """Return whether a client must put a token before it may use a queue."""
        return user is None and not self.lets_anonymous_in

    def sasl_server(self, tls: TlsFiles | None = None) -> SaslServer:
        """Return the SASL mechanisms to offer.

        :raises OSError: if the file of the certificate cannot be read.
        """
        own = None if tls is None or self.users is None else own_certificate(tls)
        return SaslServer(
            mechanisms=self._mechanisms(),
            users=self.users,
            tokens=self.tokens,
            binding=None if own is None else channel_binding.of_certificate(own),
        )

    def _mechanisms(self) -> tuple[str, ...]:
        # SCRAM first: a client takes the first mechanism that it knows.
        scram = tuple(DIGESTS)
        offered = (*channel_binding.bound(scram), *scram, "PLAIN") if self.users is not None else ()
        if self.tokens is not None:
            offered = (*BEARER, *offered) if offered else (*BEARER, "PLAIN")
        if self.external:
            offered = ("EXTERNAL", *offered)
        if self.claimable is not None:
            offered = (*offered, CLAIMS)
        return (*offered, "ANONYMOUS") if self.lets_anonymous_in or self.claimable is not None else offered

    def has_authenticated(self, login: Login | None) -> bool:
        """Return whether the client meets this member's requirements for an Open."""
        return self.lets_anonymous_in or self.claimable is not None or self.user(login) is not None

    def user(self, login: Login | None) -> str | None:
        """Return the authenticated name, ``None`` for anonymous."""
        return None if login is None or login.mechanism in ("ANONYMOUS", CLAIMS) else login.user

    def is_admin(self, user: str | None) -> bool:
        """Return whether the user is the cluster-admin."""
        return user is not None and user == self.admin

    def may_send_site_events(self, user: str | None) -> bool:
        """Return whether the member applies site events that this client sends."""
        return self._users_are_anonymous or self.is_admin(user)

    def may_receive_site_events(self, user: str | None) -> bool:
        """Return whether this client may receive the events of this site's queues."""
        return self.may_send_site_events(user) or user in self.link_users

    def checks_user_id(self, user: str | None) -> bool:
        """Return whether this client may send only its own messages; the cluster-admin also moves others'."""
        return not self._users_are_anonymous and not self.is_admin(user)

    @property
    def _users_are_anonymous(self) -> bool:
        return self.users is None and self.tokens is None and not self.external
