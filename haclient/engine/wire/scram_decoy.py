"""The challenge for a user who does not exist, so that SCRAM does not say which users do.

Cyrus SASL refuses the first message of an unknown user, and answers that of a known one with a salt.  The
client gets such an answer here as well, and is refused after its proof, as with a wrong password.

Rules
-----
* A first message that is not of the usual form (``is_usual``) is refused whoever it names: so Cyrus refuses
  none but those of unknown users.
* The salt of a name stays the same while the member runs, as Cyrus's does.
* The answer costs about what Cyrus's costs for a known user.  Somebody near who measures for long enough may
  still see which of them it was.

Source: RFC 5802, sections 5.1 (salt and iteration count) and 7 (client-first-message).
"""

from __future__ import annotations

import base64
import os
import re

DIGESTS = {
    "SCRAM-SHA-1": "sha1",
    "SCRAM-SHA-224": "sha224",
    "SCRAM-SHA-256": "sha256",
    "SCRAM-SHA-384": "sha384",
    "SCRAM-SHA-512": "sha512",
}
"""The mechanisms that there are challenges for, and what they hash with."""
# No channel binding, which is not offered, and no extensions.  Cyrus takes nonces of some hundred bytes.
_CLIENT_FIRST = re.compile(rb"[ny],(?:a=(?:[^,=\0]|=2C|=3D)*)?,n=((?:[^,=\0]|=2C|=3D)+),r=([!-+\--~]{1,256})")
_LONGEST = 1024
# Those of Cyrus, and of RFC 5802, section 5.1.
_ITERATIONS = 4096
_NONCE_BYTES = 24
# Cyrus takes so many times as long as hashlib for the same: see ``broker_stub.admission.calibration``.
_CYRUS_FACTOR = 5.5


def is_usual(message: bytes) -> bool:
    """Return whether a first message is one that clients send."""
    return len(message) <= _LONGEST and _CLIENT_FIRST.fullmatch(message) is not None


def challenge(mechanism: str, message: bytes, secret: bytes) -> bytes:
    """The answer to the first message of an unknown user.

    :param message: a usual one.
    :param secret: of this process.
    """
    import hashlib  # noqa: PLC0415 - clients load this module too, and challenge nobody
    import hmac  # noqa: PLC0415

    found = _CLIENT_FIRST.fullmatch(message)
    assert found is not None, "is_usual comes first"
    kind = DIGESTS[mechanism]
    salt = hmac.digest(secret, mechanism.encode() + b"," + found[1].strip(), kind)
    hashlib.pbkdf2_hmac(kind, secret, salt, round(_ITERATIONS * _CYRUS_FACTOR))
    nonce = base64.b64encode(os.urandom(_NONCE_BYTES))
    return b"r=%b%b,s=%b,i=%d" % (found[2], nonce, base64.b64encode(salt), _ITERATIONS)
