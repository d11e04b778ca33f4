"""proton's objects of one connection: made together, bound to each other, and released together."""

from __future__ import annotations

import proton
from cproton_ffi import ffi, lib

from haclient.engine import sasl
from haclient.engine.settings import Settings


class ProtonObjects:
    """The connection, its transport (with TLS and SASL), and the collector of its events."""

    __slots__ = ("collector", "connection", "transport")

    def __init__(self, settings: Settings) -> None:
        server = settings.sasl_server is not None
        self.connection = proton.Connection()
        self.transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.connection.container = settings.container_id
        if settings.hostname:
            self.connection.hostname = settings.hostname
        self.transport.max_frame_size = settings.max_frame_size
        self.transport.idle_timeout = settings.heartbeat
        if settings.tls_domain is not None:
            tls = proton.SSL(self.transport, settings.tls_domain)
            if settings.tls_name:
                tls.peer_hostname = settings.tls_name
        sasl.configure(self.transport, self.connection, settings)
        self.transport.bind(self.connection)

    def release(self) -> None:
        """Release the objects: links and sessions are freed with their connection."""
        self.transport.unbind()
        self.collector.release()
        lib.pn_connection_collect(self.connection._impl, ffi.NULL)
        lib.pn_connection_release(self.connection._impl)
