"""Fetches a small document from a server that may be slow, or lie.

Rules
-----
* A redirect is an error: it may lead to another host, or out of TLS.
* Without TLS no proxy is used: it would read the request.
* The size is bounded, and the time from the first byte of the body to the last.

Source: RFC 9110, section 15.4 (redirects).
"""

from __future__ import annotations

import ssl
import time
from http.client import HTTPException
from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

_MOST_BYTES = 1 << 20
_CHUNK = 1 << 16


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: its answer becomes an ``HTTPError``."""


def fetch(request: Request, seconds: float, context: ssl.SSLContext | None = None) -> bytes:
    """Return the body of the answer.

    :param seconds: time for each step of the connection, and for the body.
    :param context: TLS settings; ``None`` for the system's authorities.
    :raises urllib.error.HTTPError: for an answer that is none of 2xx.
    :raises OSError: if there is no complete answer in time, or it is larger than a megabyte.
    """
    proxies = [] if request.type == "https" else [ProxyHandler({})]
    opener = build_opener(_NoRedirect, HTTPSHandler(context=context), *proxies)
    found = bytearray()
    try:
        with opener.open(request, timeout=seconds) as answer:
            end = time.monotonic() + seconds
            while chunk := answer.read1(_CHUNK):
                found += chunk
                if len(found) > _MOST_BYTES:
                    raise OSError("the answer is larger than a megabyte")
                if time.monotonic() > end:
                    raise TimeoutError("the answer is too slow")
            if answer.length:
                raise OSError("the answer ends too early")
    except HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from None
    return bytes(found)
