"""Signs tokens as an identity provider does, with keys that rotate; a member reads its key set."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

ISSUER, AUDIENCE = "https://issuer.example.test", "brokers"


class IdentityProvider:
    """Issues tokens, and keeps its public keys in a file.

    :ivar key_set: the file of the key set.
    """

    def __init__(self, directory: Path) -> None:
        self.key_set = directory / "jwks.json"
        self._keys: list[RSAKey | ECKey] = []
        self.rotate()

    def rotate(self, *, keep: bool = True) -> None:
        """Sign by a new key from now on, whose kind alternates.

        :param keep: whether the former keys stay in the set.
        """
        parameters: Any = {"kid": uuid.uuid4().hex, "use": "sig"}
        new = (
            ECKey.generate_key("P-256", parameters)
            if len(self._keys) % 2
            else RSAKey.generate_key(2048, parameters)
        )
        self._keys = [*(self._keys if keep else []), new]
        written = self.key_set.with_suffix(".new")
        written.write_text(json.dumps(KeySet(list(self._keys)).as_dict(private=False)))
        written.replace(self.key_set)

    def token(self, user: str = "app", *, seconds: float = 300, **claims: Any) -> str:
        """Return a token of a user that is valid for so long; ``claims`` replace the usual ones."""
        key = self._keys[-1]
        header = {"alg": "ES256" if isinstance(key, ECKey) else "RS256", "kid": key.kid}
        found = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": time.time() + seconds, **claims}
        kept = {name: value for name, value in found.items() if value is not None}
        return jwt.encode(header, kept, key, algorithms=[header["alg"]])

    @property
    def options(self) -> dict[str, str]:
        """The options of ``broker-stub serve`` and ``pair`` for its tokens."""
        return {"jwks": str(self.key_set), "token-issuer": ISSUER, "token-audience": AUDIENCE}
