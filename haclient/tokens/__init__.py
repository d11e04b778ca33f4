"""Functions that supply tokens to ``credentials=``, in place of passwords.

from haclient.tokens import ClientCredentials

tokens = ClientCredentials("https://id.example/token", "orders", "secret")
haclient.connect("amqps://broker-a,broker-b", credentials=tokens)
"""

from __future__ import annotations

from haclient.engine.sasl.token import Token
from haclient.errors import TokenRequestError
from haclient.tokens.file import TokenFile
from haclient.tokens.oauth import ClientCredentials
from haclient.tokens.shared_access import SharedAccessKey

__all__ = ["ClientCredentials", "SharedAccessKey", "Token", "TokenFile", "TokenRequestError"]
