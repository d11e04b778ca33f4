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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import proton
from proton._reactor import SSLConfig

from haclient.engine.tls import empty_server_context

SSLDomain = proton.SSLDomain
_HAS_OPENSSL = proton.SSL.present()
_ATTRIBUTE = "_haclient_tls"


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of a domain, which a change replaces.

    :param serves: whether it is for listeners.
    :param verify: a constant of ``SSLDomain``.
    :param credentials: the files of the certificate and its key, and the password of the key.
    :param authorities: files or directories.
    :param optional: whether a listener takes clients without TLS too.
    """

    serves: bool
    verify: int
    credentials: tuple[str, str | None, str] | None = None
    authorities: tuple[str, ...] = ()
    optional: bool = False
    _contexts: list[ssl.SSLContext] = field(default_factory=list, compare=False)

    def context(self) -> ssl.SSLContext:
        """Return the context of connections, made at the first call.

        :raises OSError: if a file cannot be read.
        """
        if not self._contexts:
            self._contexts.append(self._server_context() if self.serves else self._client_context())
        return self._contexts[0]

    def changed(self, **settings: Any) -> Tls:
        """Return other settings.

        :raises proton.SSLException: if a file cannot be read, or is not PEM.
        """
        made = replace(self, **settings, _contexts=[])
        try:
            made.context()
        except OSError as error:
            raise proton.SSLException(f"SSL failure: {error}") from error
        return made

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
        _proton("__init__", self, mode)
        setattr(self, _ATTRIBUTE, Tls(serves, verify))

    def set_credentials(self, cert_file: str, key_file: str | None, password: str | None) -> int:
        """Set the certificate to present, and its key; see ``proton.SSLDomain``."""
        # Without a password OpenSSL would ask on the terminal.
        made = tls_of(self).changed(credentials=(cert_file, key_file, password or ""))
        return _take(made, "set_credentials", self, cert_file, key_file, password)

    def set_trusted_ca_db(self, certificate_db: str) -> int:
        """Trust these authorities, a file or a directory; see ``proton.SSLDomain``."""
        tls = tls_of(self)
        made = tls.changed(authorities=(*tls.authorities, certificate_db))
        return _take(made, "set_trusted_ca_db", self, certificate_db)

    def set_peer_authentication(self, verify_mode: int, trusted_CAs: str | None = None) -> int:  # noqa: N803
        """Set how a peer's certificate is verified; see ``proton.SSLDomain``."""
        if verify_mode not in (SSLDomain.VERIFY_PEER, SSLDomain.VERIFY_PEER_NAME, SSLDomain.ANONYMOUS_PEER):
            raise proton.SSLException(f"SSL failure: there is no verification {verify_mode!r}")
        made = tls_of(self).changed(verify=verify_mode)
        return _take(made, "set_peer_authentication", self, verify_mode, trusted_CAs)

    def allow_unsecured_client(self) -> int:
        """Let a listener take clients without TLS too.

        :raises proton.SSLException: if the domain is for clients.
        """
        tls = tls_of(self)
        if not tls.serves:
            raise proton.SSLException("SSL failure: the domain is for clients")
        return _take(tls.changed(optional=True), "allow_unsecured_client", self)

    def __del__(self) -> None:
        if hasattr(self, "_domain"):
            _proton("__del__", self)


_REPLACED = {name: value for name, value in vars(_Methods).items() if callable(value)}
_PROTONS = {name: getattr(SSLDomain, name) for name in _REPLACED}


def _proton(name: str, domain: Any, *arguments: Any) -> int:
    return _PROTONS[name](domain, *arguments) if _HAS_OPENSSL else 0


def _take(made: Tls, name: str, domain: Any, *arguments: Any) -> int:
    """Call proton's method, and keep the settings if it raises nothing."""
    done = _proton(name, domain, *arguments)
    setattr(domain, _ATTRIBUTE, made)
    return done


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
