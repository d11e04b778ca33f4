"""Tokens that a program makes itself from a key of Azure Service Bus or Event Hubs.

Source: Microsoft, "Service Bus access control with Shared Access Signatures".
"""

from __future__ import annotations

import base64
import hmac
import time
from urllib.parse import quote_plus

from haclient.engine.sasl.token import Token

_HOUR = 3600.0


class SharedAccessKey:
    """Supplies shared access signatures.

        key = SharedAccessKey("sb://orders.servicebus.windows.net/", "RootManageSharedAccessKey", secret)
        haclient.connect("amqps://orders.servicebus.windows.net", credentials=key)

    :param resource: what the signature is for: the namespace, or one queue or topic in it.
    :param key_name: name of the key.
    :param key: the key.
    :param seconds: how long each signature is valid.
    """

    def __init__(self, resource: str, key_name: str, key: str, *, seconds: float = _HOUR) -> None:
        self._resource = quote_plus(resource)
        self._name, self._key = quote_plus(key_name), key.encode()
        self._seconds = seconds

    def __call__(self) -> Token:
        """Make a signature."""
        expiry = int(time.time() + self._seconds)
        digest = hmac.digest(self._key, f"{self._resource}\n{expiry}".encode(), "sha256")
        signature = quote_plus(base64.b64encode(digest))
        value = f"SharedAccessSignature sr={self._resource}&sig={signature}&se={expiry}&skn={self._name}"
        return Token(value, expiry)

    def __repr__(self) -> str:
        return f"SharedAccessKey({self._resource!r}, {self._name!r})"
