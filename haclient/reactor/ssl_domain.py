"""``proton.SSLDomain`` for Python's ``ssl``, which does the TLS of the drop-in.

proton may be built without OpenSSL, and its ``SSLDomain`` cannot be made then.  proton's own TLS would also
hide a peer's bytes, some of which crash the process.  So this module replaces the methods of the class: an
instance keeps its settings.  Where proton has OpenSSL, the methods of proton run too, for programs that use
its transports themselves.

Rules
-----
* A change affects only connections that begin after it, as with proton.
* A client trusts the authorities of the system and of ``set_trusted_ca_db``.  It verifies the chain and the
  name by default.  An address is compared with the addresses of the certificate.
* From ``set_peer_authentication`` on, the clients of a listener must have a certificate of the authorities of
  ``set_trusted_ca_db``, or of the system's authorities if that was not called.
* A domain that was made before this module was imported has no settings here, and is refused.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proton
from proton._reactor import SSLConfig

from haclient.engine.tls import empty_server_context

SSLDomain = proton.SSLDomain
_HAS_OPENSSL = proton.SSL.present()
_ATTRIBUTE = "_haclient_tls"


@dataclass(slots=True)
class Tls:
    """The settings of a domain.

    :param serves: whether it is for listeners.
    :ivar credentials: the files of the certificate and its key, and the password of the key.
    :ivar authorities: files or directories.
    :ivar verify: a constant of ``SSLDomain``.
    :ivar optional: whether a listener takes clients without TLS too.
    """

    serves: bool
    credentials: tuple[str, str | None, str] | None = None
    authorities: list[str] = field(default_factory=list)
    verify: int = 0
    optional: bool = False
    _context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for connections that begin now.

        :raises OSError: if a file cannot be read.
        """
        if self._context is None:
            self._context = self._server_context() if self.serves else self._client_context()
        return self._context

    def change(self) -> None:
        """Use the settings as they are now.

        :raises proton.SSLException: if a file cannot be read, or is not PEM.
        """
        self._context = None
        try:
            self.context()
        except OSError as error:
            raise proton.SSLException(f"SSL failure: {error}") from error

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.verify != SSLDomain.VERIFY_PEER_NAME:
            context.check_hostname = False
        if self.verify == SSLDomain.ANONYMOUS_PEER:
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_default_certs()
        return self._with_files(context)

    def _server_context(self) -> ssl.SSLContext:
        context = empty_server_context()
        if self.verify != SSLDomain.ANONYMOUS_PEER:
            context.verify_mode = ssl.CERT_REQUIRED
            if not self.authorities:
                context.set_default_verify_paths()
        return self._with_files(context)

    def _with_files(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self.credentials is not None:
            context.load_cert_chain(*self.credentials)
        for path in self.authorities:
            if Path(path).is_dir():
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        return context


class _Methods:
    """The methods of ``proton.SSLDomain`` that replace proton's."""

    def __init__(self, mode: int) -> None:
        serves = mode == SSLDomain.MODE_SERVER
        verify = SSLDomain.ANONYMOUS_PEER if serves else SSLDomain.VERIFY_PEER_NAME
        setattr(self, _ATTRIBUTE, Tls(serves, verify=verify))
        _proton("__init__", self, mode)

    def set_credentials(self, cert_file: str, key_file: str | None, password: str | None) -> int:
        """Set the certificate to present, and its key; see ``proton.SSLDomain``."""
        tls = tls_of(self)
        # Without a password OpenSSL would ask on the terminal.
        tls.credentials = cert_file, key_file, password or ""
        tls.change()
        return _proton("set_credentials", self, cert_file, key_file, password)

    def set_trusted_ca_db(self, certificate_db: str) -> int:
        """Trust these authorities, a file or a directory; see ``proton.SSLDomain``."""
        tls = tls_of(self)
        tls.authorities.append(certificate_db)
        tls.change()
        return _proton("set_trusted_ca_db", self, certificate_db)

    def set_peer_authentication(self, verify_mode: int, trusted_CAs: str | None = None) -> int:  # noqa: N803
        """Set how a peer's certificate is verified; see ``proton.SSLDomain``."""
        tls = tls_of(self)
        tls.verify = verify_mode
        tls.change()
        return _proton("set_peer_authentication", self, verify_mode, trusted_CAs)

    def allow_unsecured_client(self) -> int:
        """Let a listener take clients without TLS too.

        :raises proton.SSLException: if the domain is for clients.
        """
        tls = tls_of(self)
        if not tls.serves:
            raise proton.SSLException("SSL failure: the domain is for clients")
        tls.optional = True
        return _proton("allow_unsecured_client", self)

    def __del__(self) -> None:
        if hasattr(self, "_domain"):
            _proton("__del__", self)


_REPLACED = {name: value for name, value in vars(_Methods).items() if callable(value)}
_PROTONS = {name: getattr(SSLDomain, name) for name in _REPLACED}


def _proton(name: str, domain: Any, *arguments: Any) -> int:
    return _PROTONS[name](domain, *arguments) if _HAS_OPENSSL else 0


for _name, _method in _REPLACED.items():
    setattr(SSLDomain, _name, _method)
setattr(proton.SSL, "present", staticmethod(lambda: True))  # noqa: B010 - mypy takes no other assignment


def tls_of(domain: Any) -> Tls:
    """Return the settings of a domain.

    :raises TypeError: if it is none, or was made before this module was imported.
    """
    found = getattr(domain, _ATTRIBUTE, None)
    if not isinstance(found, Tls):
        kind = f"{type(domain).__module__.partition('.')[0]}.{type(domain).__name__}"
        raise TypeError(f"this {kind} cannot be read: import haclient.reactor before you make an SSLDomain")
    return found


def for_connecting(domain: Any) -> Tls:
    """Return the settings of a domain if a connection can use it.

    :raises TypeError: if not; its text names the remedy.
    """
    tls = tls_of(domain)
    if tls.serves:
        raise TypeError("a connection needs an SSLDomain(SSLDomain.MODE_CLIENT)")
    return tls


def for_listening(domain: Any) -> Tls:
    """Return the settings of a domain if a listener can use it.

    :raises TypeError: if not; its text names the remedy.
    """
    tls = tls_of(domain)
    if not tls.serves:
        raise TypeError("a listener needs an SSLDomain(SSLDomain.MODE_SERVER)")
    return tls


class Domains(SSLConfig):
    """The domains of a container: ``client`` for its connections, ``server`` for its listeners."""

    def __init__(self) -> None:
        self.client = SSLDomain(SSLDomain.MODE_CLIENT)
        self.server = SSLDomain(SSLDomain.MODE_SERVER)
