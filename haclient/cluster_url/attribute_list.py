"""Lists of attributes as text: ``service.version=1.4,cloud.region=eu-west-1``.

Rules
-----
* Commas separate pairs.  In keys and values ``,``, ``=`` and ``%`` must be percent-encoded, other characters
  may be; surrounding spaces are ignored.  A second ``=`` in a pair belongs to the value.
* Escapes that are not UTF-8 become U+FFFD.  A ``%`` without two hex digits is an error.
* One error makes the whole list invalid.

Sources: OpenTelemetry specification, resource SDK, "Specifying resource information via an environment
variable"; W3C Baggage, 3.2.1.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

MOST_ATTRIBUTES = 128
"""Maximum number of attributes in a list; the same as OpenTelemetry's limit for a span."""

_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_attributes(text: str) -> dict[str, str]:
    """Return the attributes of a list; of a repeated key, the last value.

    :raises ValueError: quotes no value, because it may be long or secret.
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
