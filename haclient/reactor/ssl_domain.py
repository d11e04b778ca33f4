"""The TLS of listeners: proton's ``SSLDomain``, with settings that Python's ``ssl`` can use.

Rules
-----
* A listener uses Python's ``ssl`` for TLS.  proton's own TLS would hide a peer's bytes until proton reads
  them, and some of them crash the process.  A listener refuses a domain of proton's own, whose files cannot
  be read back.
* As with proton, a change affects only connections that are accepted after it.
* From ``set_peer_authentication`` on, clients must have a certificate of the authorities of
  ``set_trusted_ca_db``, or of the system's authorities if that was not called.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import proton
from proton._reactor import SSLConfig

from haclient.engine.tls import empty_server_context


class SSLDomain(proton.SSLDomain):
    """proton's domain; one in server mode also works for ``Container.listen``."""

    def __init__(self, mode: int) -> None:
        super().__init__(mode)
        self._serves = mode == proton.SSLDomain.MODE_SERVER
        self._credentials: tuple[str, str | None, str] | None = None
        self._authorities: list[str] = []
        self._asks = False
        self._context: ssl.SSLContext | None = None

    def set_credentials(self, cert_file: str, key_file: str | None, password: str | None) -> int:
        """Set the certificate to present, and its key; see ``proton.SSLDomain``."""
        done: int = super().set_credentials(cert_file, key_file, password)  # type: ignore[arg-type]  # C takes none
        # Without a password OpenSSL would ask on the terminal.
        self._credentials, self._context = (cert_file, key_file, password or ""), None
        return done

    def set_trusted_ca_db(self, certificate_db: str) -> int:
        """Trust these authorities, a file or a directory; see ``proton.SSLDomain``."""
        done: int = super().set_trusted_ca_db(certificate_db)
        self._authorities, self._context = [*self._authorities, certificate_db], None
        return done

    def set_peer_authentication(self, verify_mode: int, trusted_CAs: str | None = None) -> int:  # noqa: N803
        """Set whether the peer needs a certificate; see ``proton.SSLDomain``."""
        done: int = super().set_peer_authentication(verify_mode, trusted_CAs)
        self._asks, self._context = verify_mode != proton.SSLDomain.ANONYMOUS_PEER, None
        return done

    def allow_unsecured_client(self) -> int:
        """Refuse: clients without TLS need a listener on another port.

        :raises proton.SSLException: always.
        """
        raise proton.SSLException("a listener with TLS takes no other clients here: listen twice")

    def server_context(self) -> ssl.SSLContext:
        """Return the context for connections that are accepted from now on.

        :raises OSError: if a file can no longer be read.
        """
        if self._context is None:
            self._context = self._make_context()
        return self._context

    def _make_context(self) -> ssl.SSLContext:
        context = empty_server_context()
        if self._credentials is not None:
            context.load_cert_chain(*self._credentials)
        if self._asks:
            context.verify_mode = ssl.CERT_REQUIRED
            for path in self._authorities:
                if Path(path).is_dir():
                    context.load_verify_locations(capath=path)
                else:
                    context.load_verify_locations(cafile=path)
            if not self._authorities:
                context.set_default_verify_paths()
        return context


def for_listening(domain: Any) -> SSLDomain:
    """Return the domain if a listener can use it.

    :raises TypeError: if not; its text names the remedy.
    """
    if not isinstance(domain, SSLDomain) or not domain._serves:
        kind = f"{type(domain).__module__.partition('.')[0]}.{type(domain).__name__}"
        raise TypeError(
            f"a listener needs a haclient.reactor.SSLDomain(SSLDomain.MODE_SERVER), not this {kind}: import"
            " SSLDomain from haclient.reactor"
        )
    return domain


class Domains(SSLConfig):
    """The domains of a container: ``client`` for its connections, ``server`` for its listeners."""

    def __init__(self) -> None:
        self.client = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
        self.server = SSLDomain(proton.SSLDomain.MODE_SERVER)
