"""Tokens in place of passwords, and functions that supply them to ``credentials=``.

    from haclient.tokens import ClientCredentials

    tokens = ClientCredentials("https://id.example/token", "orders", "secret")
    haclient.connect("amqps://broker-a,broker-b", credentials=tokens)

A name is imported on first use (PEP 562): most applications have no tokens.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module
if TYPE_CHECKING:
    from haclient.errors import TokenRequestError
    from haclient.tokens.file import TokenFile
    from haclient.tokens.oauth import ClientCredentials
    from haclient.tokens.shared_access import SharedAccessKey
    from haclient.tokens.token import Token

__all__ = ["ClientCredentials", "SharedAccessKey", "Token", "TokenFile", "TokenRequestError"]

_HOMES = {
    "ClientCredentials": "haclient.tokens.oauth",
    "SharedAccessKey": "haclient.tokens.shared_access",
    "Token": "haclient.tokens.token",
    "TokenFile": "haclient.tokens.file",
    "TokenRequestError": "haclient.errors",
}

if not TYPE_CHECKING:  # type checkers would accept any name of the package

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)
