"""Tokens from an identity provider, by OAuth 2.0.

Sources: RFC 6749, sections 2.3.1 (the secret), 4.4 (client credentials), 5 (answers).
"""

from __future__ import annotations

import json
import math
import os
import ssl
import threading
import time
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPException
from ipaddress import ip_address
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request

from haclient.engine.sasl.token import Token
from haclient.error_catalog.base import brief
from haclient.errors import TokenRequestError
from haclient.printable.log import get_logger
from haclient.tokens.fetch import fetch

logger = get_logger("haclient")

# Seconds for the provider to answer: half of ``attempt_timeout``, so that the attempt can go on without it.
_TIMEOUT = 5.0
# Seconds from a request without an answer to the next one, while the last token is valid.
_PAUSE = 10.0
_MOST_OF_REASON = 1 << 16
# A token is supplied again while it has more than this share of its life left: one request for a fleet of
# connections, and another token when these renew (``core.renewal.schedule``).
_YOUNG = 0.5
# Seconds that a token is shared if it does not say how long it lives: less than any provider's default.
_UNKNOWN_LIFE = 60.0


class ClientCredentials:
    """Supplies tokens that an identity provider issues to a program.

        tokens = ClientCredentials("https://id.example/token", "orders", secret, scope="broker")
        haclient.connect(url, credentials=tokens)

    All connections of a process may share it: they share its token.  If the provider does not answer, the
    last token is supplied until it expires.

    :param token_url: the provider's token endpoint; ``https``, except on this machine.
    :param client_id: the name of the program at the provider.
    :param client_secret: its secret.
    :param scope: what the token is for, if the provider asks.
    :param ssl_context: for a provider whose certificate is signed by an authority of yours.
    :param user: see ``Token``.
    :param parameters: further parameters of the request, as ``audience="broker"``.
    :raises ValueError: if the URL is none of these.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        user: str | None = None,
        **parameters: str,
    ) -> None:
        self._url, self._user, self._context = _checked(token_url), user, ssl_context
        known = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        self._form = urlencode({**known, **parameters}).encode()
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._authorization = f"Basic {b64encode(pair.encode()).decode()}"
        self._forget()

    def _forget(self) -> None:
        """Begin without a token, and with a lock that no thread of another process holds."""
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._last: Token | None = None
        self._ask_at = _Moment(0.0)

    def __call__(self) -> Token:
        """Return a token that is young; request one if there is none.

        :raises TokenRequestError: if the provider refuses to issue one.
        :raises OSError: if it does not answer: the client tries again.
        """
        if self._pid != os.getpid():
            self._forget()
        if not self._lock.acquire(timeout=_TIMEOUT):
            return self._former("another thread waits for its answer")
        try:
            if self._last is None or self._ask_at.has_come():
                self._request()
            assert self._last is not None
            return self._last
        except OSError as error:
            former = self._former(str(error))
            self._ask_at = _Moment(_PAUSE)
            return former
        finally:
            self._lock.release()

    def _former(self, problem: str) -> Token:
        last = self._last
        if last is None or (last.expiry or math.inf) <= time.time():
            raise OSError(problem)
        logger.warning("no new token from %s: %s; the last one is used", self._url, problem)
        return last

    def _request(self) -> None:
        headers = {"Accept": "application/json", "Authorization": self._authorization}
        asked = Request(self._url, self._form, headers)  # noqa: S310 - checked
        now = time.time()
        try:
            found = json.loads(fetch(asked, _TIMEOUT, self._context))
        except HTTPError as error:
            raise _refusal(self._url, error) from None
        except OSError as error:
            raise OSError(f"{self._url}: {error}") from None
        except (ValueError, RecursionError):
            raise OSError(f"{self._url}: its answer is no JSON") from None
        try:
            lives = found.get("expires_in")
            expires_at = None if lives is None else now + float(lives)
            self._last = Token(found["access_token"], expires_at, user=self._user)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise OSError(f"{self._url}: its answer has no token") from None
        expiry = self._last.expiry
        self._ask_at = _Moment(_UNKNOWN_LIFE if expiry is None else (expiry - now) * _YOUNG)

    def __repr__(self) -> str:
        return f"ClientCredentials({self._url!r})"


class _Moment:
    """A moment in some seconds, by the clock or without it: a clock may be set back, a computer may sleep."""

    def __init__(self, seconds: float) -> None:
        self._monotonic, self._time = time.monotonic() + seconds, time.time() + seconds

    def has_come(self) -> bool:
        return time.monotonic() >= self._monotonic or time.time() >= self._time


def _refusal(url: str, error: HTTPError) -> Exception:
    """Return the error for an answer that is none of 2xx; one of 5xx or 429 may pass."""
    if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS:
        return OSError(f"{url}: {error.code} {brief(error.reason)}")
    try:
        found = json.loads(error.read(_MOST_OF_REASON))
        texts = [str(found[key]) for key in ("error", "error_description") if key in found]
    except (OSError, ValueError, TypeError, RecursionError, HTTPException):
        texts = []
    reason = brief(": ".join(texts)) or f"{error.code} {brief(error.reason)}"
    return TokenRequestError(f"{url} issues no token: {reason}")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise ValueError(f"token_url: an https URL is expected, without a user, not {brief(url)!r}")
    if parts.scheme == "http" and not _is_here(host):
        raise ValueError("token_url: https is expected, so that the secret is encrypted")
    return url


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
