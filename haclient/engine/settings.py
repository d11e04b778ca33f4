"""The parameters of one AMQP connection, on either side."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haclient.engine.sasl.mechanism import Mechanism
from haclient.engine.sasl.users import Tokens, Users

# Twice the default of most clients, a quarter of Artemis's: a 100-byte message never splits.
DEFAULT_MAX_FRAME_SIZE = 65536
MIN_FRAME_SIZE = 512  # AMQP 1.0 part 2, section 2.4.1: MIN-MAX-FRAME-SIZE
# Seconds, in both directions: docs/options.md.
DEFAULT_HEARTBEAT = 10.0
# A link refuses a larger message, which would fill memory.
DEFAULT_MAX_MESSAGE_SIZE = 256 * 1024 * 1024
# A capability of the client: the member may park the connection, and answers its Begin later
# (docs/storms.md).
PARK = "haclient:park"
# Links that a client may attach while parked; the member answers them together with the Begin.
MAX_PARKED_LINKS = 100
# Open property: the number of the connection within its container; a busy primary reserves a time for each.
CONNECTION_NUMBER = "haclient:connection"
# Open property: the client id if it differs from the container id; members report the client under it.
CLIENT_ID = "haclient:client-id"


def is_scram(mechanism: str) -> bool:
    """Return whether a mechanism makes both sides prove that they know the password."""
    return mechanism.startswith("SCRAM-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslServer:
    """The server side of SASL.

    :param mechanisms: the mechanisms to offer; EXTERNAL only to clients with a certificate, SCRAM only if
        ``users`` has its keys, and SCRAM with channel binding only inside TLS with a ``binding``.
    :param users: the users, for SCRAM and PLAIN.
    :param tokens: the tokens, for OAUTHBEARER, XOAUTH2 and PLAIN.
    :param binding: the channel binding of this server's certificate; ``None`` if it has none.
    :param is_protons: whether proton and the host's ``proton-server.conf`` decide instead, for what a drop-in
        application listens on.
    """

    mechanisms: tuple[str, ...] = ("ANONYMOUS",)
    users: Users | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False)
    binding: bytes | None = None
    is_protons: bool = False

    @property
    def requires_sasl(self) -> bool:
        """Return whether a client that skips the SASL layer is disconnected.

        True if ANONYMOUS is not among the mechanisms.

        Source: AMQP 1.0 part 2, section 2.2: a client may leave that layer out.
        """
        return not self.is_protons and "ANONYMOUS" not in self.mechanisms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to open one connection.

    :param container_id: the AMQP container id of this side.
    :param hostname: Open's ``hostname`` (client side): the virtual host.
    :param heartbeat: seconds of silence after which the peer is lost; it also sets how often the peer must
        send.  0 turns heartbeats off.
    :param channel_max: the highest channel that the peer may use: one less than its most sessions at a time.
        ``None`` is the highest that proton allows.
    :param user: SASL user (client side); ``None`` means ANONYMOUS, if ``mechanisms`` names no other.
    :param bearer: whether the password is a bearer token (client side).
    :param mechanisms: allowed SASL mechanisms (client side); empty means any safe one.
    :param kerberos: the exchange by Kerberos, begun for this connection alone (client side).
    :param sasl: whether there is a SASL layer (client side).
    :param plaintext: whether a password or token may be sent without encryption (client side).
    :param shows_certificate: whether TLS has a certificate of this client, which EXTERNAL needs.
    :param tls_context: TLS of the server side; a client's is asyncio's.
    :param tls_optional: whether the server side takes clients without TLS too.
    :param tls_name: the name that TLS asks for and checks (client side).
    :param sasl_server: the server side of SASL; ``None`` for a client.
    """

    container_id: str
    hostname: str | None = None
    heartbeat: float = DEFAULT_HEARTBEAT
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    channel_max: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer: bool = False
    mechanisms: tuple[str, ...] = ()
    kerberos: Mechanism | None = field(default=None, repr=False)
    sasl: bool = True
    plaintext: bool = True
    properties: Mapping[str, Any] = field(default_factory=dict)
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    shows_certificate: bool = False
    tls_context: ssl.SSLContext | None = field(default=None, repr=False)
    tls_optional: bool = False
    tls_name: str | None = None
    sasl_server: SaslServer | None = None
