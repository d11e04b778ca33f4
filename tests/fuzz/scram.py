"""A peer that knows the passwords, for ``Kind.PROOF`` steps of a script, since proofs cannot be recorded.

Source: RFC 5802, section 3 (the messages and computations); AMQP 1.0 part 5, section 5.3.3.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping

_CHALLENGE, _RESPONSE = 0x42, 0x43
_CLIENT_FIRST = re.compile(rb"n,[^,]*,(n=([^,]*),r=([!-+\--~]+))")
_SERVER_FIRST = re.compile(rb"(r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d+))")
_CLIENT_FINAL = re.compile(rb"(c=[A-Za-z0-9+/=]+,r=[!-+\--~]+),p=([A-Za-z0-9+/=]+)")
_VALUE = re.compile(rb"[pv]=([A-Za-z0-9+/=]+)")
_NO_CHANNEL_BINDING = b"c=biws"
# Clients accept no fewer (RFC 7677).
_ITERATIONS = 4096
_MOST_ITERATIONS = 10_000
_SALT = base64.b64encode(b"salt of the peer")


class Prover(ABC):
    """The common part of a client and a server that know the password.

    :ivar proved: whether it sent a correct proof (as a client) or signature (as a server).
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self._said = b""
        self.proved = False

    def said(self, body: bytes) -> None:
        """Record a SASL frame that the script itself sends."""
        self._said += body

    def frame(self, written: bytes, change: bytes) -> bytes:
        """Return the next SASL frame's body, in answer to ``written``, altered by ``change``; see
        ``_changed``.
        """
        code, message, secret = self._message(written)
        body = _changed(b"\x00\x53" + bytes([code]) + _list_of(message), change)
        found = _VALUE.search(body)
        if secret and found is not None and _decoded(found[1]) == secret:
            self.proved = True
        return body

    @abstractmethod
    def _message(self, written: bytes) -> tuple[int, bytes, bytes]:
        """Return the frame's code, the SCRAM message, and the secret part of the message."""

    def _keys(
        self, user: bytes, salt: bytes, iterations: bytes, mechanism: bytes
    ) -> tuple[bytes, bytes, str]:
        name = "sha1" if b"SCRAM-SHA-1" in mechanism else "sha256"
        password = self._passwords.get(user.decode(errors="replace"), "unknown").encode()
        times = max(1, min(int(iterations), _MOST_ITERATIONS))
        salted = hashlib.pbkdf2_hmac(name, password, _decoded(salt), times)
        return _hmac(salted, b"Client Key", name), _hmac(salted, b"Server Key", name), name


class ClientProver(Prover):
    """A client, to test a server."""

    def _message(self, written: bytes) -> tuple[int, bytes, bytes]:
        first, server = _last(_CLIENT_FIRST, self._said), _last(_SERVER_FIRST, written)
        if first is None or server is None:
            return _RESPONSE, b"", b""
        key, _, name = self._keys(first[2], server[3], server[4], self._said)
        without_proof = _NO_CHANNEL_BINDING + b",r=" + server[2]
        everything = b",".join((first[1], server[1], without_proof))
        signature = _hmac(hashlib.new(name, key).digest(), everything, name)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return _RESPONSE, without_proof + b",p=" + base64.b64encode(proof), proof


class ServerProver(Prover):
    """A server, to test a client."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        super().__init__(passwords)
        self._first = b""

    def _message(self, written: bytes) -> tuple[int, bytes, bytes]:
        client = _last(_CLIENT_FIRST, written)
        if client is None:
            return _CHALLENGE, b"", b""
        final = _last(_CLIENT_FINAL, written)
        if final is None:
            self._first = b"r=" + client[3] + b"peer,s=" + _SALT + b",i=%d" % _ITERATIONS
            return _CHALLENGE, self._first, b""
        _, key, name = self._keys(client[2], _SALT, b"%d" % _ITERATIONS, written)
        signature = _hmac(key, b",".join((client[1], self._first, final[1])), name)
        return _CHALLENGE, b"v=" + base64.b64encode(signature), signature


def _changed(body: bytes, change: bytes) -> bytes:
    """Return the body, overwritten by the change after its first byte, which is the offset."""
    if not change:
        return body
    at = change[0] % len(body)
    return body[:at] + change[1:] + body[at + len(change) - 1 :]


def _list_of(message: bytes) -> bytes:
    binary = b"\xa0" + bytes([len(message)]) + message
    return b"\xc0" + bytes([len(binary) + 1, 1]) + binary


def _last(pattern: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    found = None
    for found in pattern.finditer(data):  # noqa: B007 - the last one
        pass
    return found


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _hmac(key: bytes, data: bytes, name: str) -> bytes:
    return hmac.new(key, data, name).digest()
