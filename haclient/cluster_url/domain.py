"""Guesses which hosts have the same owner; redirects and SRV records rely on it.

Source: RFC 3696 section 2 (names and addresses).  The public suffix list defines the registry domains.
"""

from __future__ import annotations

# Second-level labels under which country registries sell names: "co.uk" has no single owner.  The public
# suffix list would be exact, and out of date in any client older than a year.
_COUNTRY_CODE = 2
_REGISTRY_LABELS = frozenset(
    ["ac", "co", "com", "edu", "go", "gov", "gv", "ltd", "mil", "ne", "net", "nom", "or", "org", "plc", "sch"]
)


def parent_domain(host: str) -> str | None:
    """Return the part after the first label, if that domain can be assumed to have one owner.

    ``None`` for IP literals, ``localhost``, and names directly below a top-level domain or below a registry
    such as ``co.uk``.  Domains that a cloud gives to all its customers cannot be told apart here; a client in
    one of them sets ``redirects=none``, or lists the members.
    """
    if is_literal(host):
        return None
    domain = host.lower().rstrip(".").partition(".")[2]
    above, _, top = domain.rpartition(".")
    below_registry = above in _REGISTRY_LABELS and len(top) == _COUNTRY_CODE
    return domain if all(domain.split(".")) and above and not below_registry else None


def is_literal(host: str) -> bool:
    """Return whether a host is an IP address, which needs no resolver."""
    # Names have no colon, and no top-level domain is a number (RFC 3696, section 2).
    return ":" in host or host.replace(".", "").isdigit()
