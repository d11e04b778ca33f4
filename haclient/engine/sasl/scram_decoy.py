"""Challenges for users who do not exist, so that SCRAM does not reveal which users do.

Cyrus SASL refuses the first message of an unknown user, but sends a salt to a known one.  This module sends a
salt to the unknown user as well.  The client is refused after its proof, as with a wrong password.

Rules
-----
* A first message that lacks the usual form (``is_usual``) is refused for any user.  So Cyrus refuses a first
  message only if its user is unknown.
* The salt of a name stays the same while the member runs, as in Cyrus.
* The answer takes about as long as Cyrus's answer to a known user.  A nearby attacker who measures for long
  enough may still see the difference.

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
"""The mechanisms that have challenges here, with their hash functions."""
# No channel binding, which is not offered, and no extensions.  Cyrus accepts nonces of some hundred bytes.
_CLIENT_FIRST = re.compile(rb"[ny],(?:a=(?:[^,=\0]|=2C|=3D)*)?,n=((?:[^,=\0]|=2C|=3D)+),r=([!-+\--~]{1,256})")
_LONGEST = 1024
# The values of Cyrus, and of RFC 5802, section 5.1.
_ITERATIONS = 4096
_NONCE_BYTES = 24
# The time of Cyrus relative to hashlib for the same work: see ``broker_stub.admission.calibration``.
_CYRUS_FACTOR = 5.5


def is_usual(message: bytes) -> bool:
    """Return whether a first message has the form that clients send."""
    return len(message) <= _LONGEST and _CLIENT_FIRST.fullmatch(message) is not None


def challenge(mechanism: str, message: bytes, secret: bytes) -> bytes:
    """Return the answer to the first message of an unknown user.

    :param message: one that ``is_usual``.
    :param secret: of this process.
    """
    import hashlib  # noqa: PLC0415 - clients load this module too, and send no challenges
    import hmac  # noqa: PLC0415

    found = _CLIENT_FIRST.fullmatch(message)
    assert found is not None, "is_usual comes first"
    kind = DIGESTS[mechanism]
    salt = hmac.digest(secret, mechanism.encode() + b"," + found[1].strip(), kind)
    hashlib.pbkdf2_hmac(kind, secret, salt, round(_ITERATIONS * _CYRUS_FACTOR))
    nonce = base64.b64encode(os.urandom(_NONCE_BYTES))
    return b"r=%b%b,s=%b,i=%d" % (found[2], nonce, base64.b64encode(salt), _ITERATIONS)
