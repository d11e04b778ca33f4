"""Lists of attributes as text: ``service.version=1.4,cloud.region=eu-west-1``.

Rules
-----
* Pairs are separated by commas.  In keys and values ``,``, ``=`` and ``%`` are percent-encoded, others may
  be; spaces around them do not count.  A ``=`` after the first one of a pair belongs to the value.
* Escapes that are not UTF-8 become U+FFFD.  A ``%`` without two hex digits is an error.
* One error and the whole list is void.

Sources: OpenTelemetry specification, resource SDK, "Specifying resource information via an environment
variable"; W3C Baggage, 3.2.1.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

MOST_ATTRIBUTES = 128
"""Attributes of one list; the limit that OpenTelemetry has for a span's."""

_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_attributes(text: str) -> dict[str, str]:
    """The attributes of a list; of a key that is there twice, the last.

    :raises ValueError: quotes no value, for it may be long or secret.
    """
    found: dict[str, str] = {}
    for number, pair in enumerate(text.split(","), start=1):
        if not pair.strip():
            continue
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"pair {number} is not key=value")
        if _NO_ESCAPE.search(pair):
            raise ValueError(f"pair {number} has a % that is no escape: write %25")
        found[unquote(key.strip())] = unquote(value.strip())
        if len(found) > MOST_ATTRIBUTES:
            raise ValueError(f"it has more than {MOST_ATTRIBUTES} attributes")
    return found
