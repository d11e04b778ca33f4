"""Tokens in place of passwords, and functions that supply them to ``credentials=``."""

from __future__ import annotations

from haclient.tokens.file import TokenFile
from haclient.tokens.oauth import ClientCredentials, TokenRequestError
from haclient.tokens.shared_access import SharedAccessKey
from haclient.tokens.token import Token

__all__ = ["ClientCredentials", "SharedAccessKey", "Token", "TokenFile", "TokenRequestError"]
