"""Fetches a small document from a server that may be slow, or lie.

Rules
-----
* A redirect is an error: it may lead to another host, or out of TLS.
* Without TLS no proxy is used: it would read the request.
* The size is bounded, and the time from the dial to the last byte.  Only the handshake of TLS may take
  longer, if the server sends it in small pieces.

Source: RFC 9110, section 15.4 (redirects).
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

_MOST_BYTES = 1 << 20


class _Reader(io.RawIOBase):
    """Reads from a socket until a moment of ``time.monotonic``; ``http.client`` takes it for the socket."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        self._socket, self._bytes, self._end = connected, connected.makefile("rb", 0), end

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer is too slow")
        self._socket.settimeout(left)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Http(HTTPConnection):
    def __init__(self, host: str, /, *, timeout: float = 0.0, **named: Any) -> None:
        super().__init__(host, timeout=timeout, **named)
        end = time.monotonic() + timeout
        respond: Any = HTTPResponse  # which needs no more of a socket than ``makefile``
        self.response_class: Any = lambda connected, **named: respond(_Reader(connected, end), **named)


class _Https(_Http, HTTPSConnection):
    """The same inside TLS."""


class _HttpHandler(HTTPHandler):
    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_Http, request)


class _HttpsHandler(HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._settings = context

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_Https, request, context=self._settings)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: its answer becomes an ``HTTPError``."""


def fetch(request: Request, seconds: float, context: ssl.SSLContext | None = None) -> bytes:
    """Return the body of the answer.

    :param seconds: time for all of it.
    :param context: TLS settings; ``None`` for the system's authorities.
    :raises urllib.error.HTTPError: for an answer that is none of 2xx; its body has what is left of the time.
    :raises OSError: if there is no complete answer in time, or it is larger than a megabyte.
    """
    proxies = [] if request.type == "https" else [ProxyHandler({})]
    opener = build_opener(_NoRedirect, _HttpHandler, _HttpsHandler(context), *proxies)
    try:
        with opener.open(request, timeout=seconds) as answer:
            found: bytes = answer.read(_MOST_BYTES + 1)
            if len(found) > _MOST_BYTES:
                raise OSError("the answer is larger than a megabyte")
            if answer.length:
                raise OSError("the answer ends too early")
    except HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from None
    return found
