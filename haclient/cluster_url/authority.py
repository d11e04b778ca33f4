"""Parsers for the parts of an authority: percent-encoding, host, port, user and password.

Sources: RFC 3986 sections 2.1 and 3.2 (URI), RFC 6874 (zones of IPv6 addresses), RFC 1123 section 2.1 (host
names), RFC 5890 (A-labels).

Rules:

- A host has one spelling after parsing: lower case, A-labels, the shortest form of an IPv6 address.
- Names with an underscore are accepted: container networks have them.  Names that end in a number and are not
  an IPv4 address are refused: they are mistyped addresses.
- IDNs go through the codec of the standard library, which implements IDNA 2003.  The four characters that
  IDNA 2008 reads as another name are refused: the client must not send a password to the owner of that name.
- No error quotes a port or any text before an ``@``.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.seed import Secret

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_HOST_PORT = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?P<colon>:(?P<port>[^:]*))?")
_PORT = re.compile(r"[0-9]{1,5}")
_ZONE = re.compile(r"[A-Za-z0-9._-]+")
# RFC 5892 section 1 and Unicode TS 46 section 7: the "deviation characters".
_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
_LONGEST_NAME = 253
_HIGHEST_PORT = 65535

_ESCAPE = "in a user or password write '@' as %40, ':' %3A, '/' %2F, '?' %3F, '#' %23, ',' %2C"


def percent_decode(text: str) -> str:
    """Undo percent-encoding; the result is UTF-8 without NUL."""
    if _BAD_PERCENT.search(text):
        raise ClusterURLError("a '%' is followed by two hexadecimal digits; a '%' itself is written %25")
    # Not "strict": the context of the error would be a UnicodeDecodeError, which carries the password.
    decoded = unquote(text, errors="surrogateescape")
    if any("\ud800" <= char <= "\udfff" for char in decoded):
        raise ClusterURLError("percent-encoded bytes are UTF-8")
    if "\0" in decoded:
        raise ClusterURLError("%00 has no place in a cluster URL")
    return decoded


def split_userinfo(authority: str, separator: str = ":") -> tuple[str | None, Secret | None, str]:
    """Split ``user:password@hosts`` into user, password and hosts."""
    userinfo, at, hosts = authority.rpartition("@")
    if not at:
        return None, None, hosts
    if "@" in userinfo or "," in userinfo:
        raise ClusterURLError(f"user and password stand once, before all hosts; {_ESCAPE}")
    user, given, password = userinfo.partition(separator)
    if not user:
        raise ClusterURLError("the user name before '@' is empty")
    return percent_decode(user), Secret(percent_decode(password)) if given else None, hosts


def refuse_late_at(*texts: str) -> None:
    """Refuse an ``@`` after the hosts: a password was not escaped, and no error may quote it."""
    if any("@" in text for text in texts):
        raise ClusterURLError(f"there is an '@' after the hosts; {_ESCAPE}; and the same in values")


def split_host_port(text: str, default_port: int) -> tuple[str, int]:
    """Split ``host``, ``host:port`` or ``[v6]:port`` into host and port.

    :raises ClusterURLError: if either is missing or wrong.
    """
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        raise _bad_shape(text)
    if match["host"] in {"", "[]"}:
        raise ClusterURLError("a host is missing: write host, host:port or [IPv6 address]:port")
    host = parse_host(match["host"])
    if not match["colon"]:
        return host, default_port
    return host, parse_port(host, match["port"])


def parse_port(host: str, text: str) -> int:
    """Return a TCP or UDP port; the error does not quote it, since it may be part of a password."""
    if _PORT.fullmatch(text) and 0 < int(text) <= _HIGHEST_PORT:
        return int(text)
    raise ClusterURLError(f"host {host!r}: a port is a number from 1 to {_HIGHEST_PORT}; {_ESCAPE}")


def parse_host(text: str) -> str:
    """Return a host in its one spelling, without the brackets of an IPv6 address."""
    if text.startswith("["):
        return _ipv6(text.removeprefix("[").removesuffix("]"))
    name = _ascii(percent_decode(text)).lower()
    labels = name.removesuffix(".").split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ClusterURLError(f"{text!r} is not a host name")
    if labels[-1].isdigit() and _as_address(name) is None:
        raise ClusterURLError(f"{text!r} is neither an IPv4 address nor a host name")
    return name


def is_address(host: str) -> bool:
    """Return whether a parsed host is an IP literal."""
    return _as_address(host) is not None


def tls_name(host: str) -> str:
    """Return the name that a host's certificate carries; empty if it is the host itself.

    The final dot of a name and the zone of an address are local to the client (RFC 6066 section 3).
    """
    name = host.removesuffix(".").partition("%")[0]
    return "" if name == host else name


def format_host(host: str) -> str:
    """Return the host in the form of a URL."""
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def _ipv6(text: str) -> str:
    address, percent, zone = text.partition("%25")
    found = _as_address(address)
    if (
        not isinstance(found, ipaddress.IPv6Address)
        or "%" in address
        or (percent and not _ZONE.fullmatch(zone))
    ):
        raise ClusterURLError(
            "there is no IPv6 address between '[' and ']' (a zone is written [fe80::1%25eth0])"
        )
    return f"{found}%{zone}" if percent else str(found)


def _as_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    if not _DEVIATIONS.isdisjoint(name):
        raise ClusterURLError(f"{name!r} is a different name in IDNA 2003 and 2008: write its xn-- form")
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ClusterURLError(f"{name!r} cannot be encoded as a host name (IDNA)") from None


def _bad_shape(text: str) -> ClusterURLError:
    if "[" in text or "]" in text:
        return ClusterURLError("brackets stand around an IPv6 address and nothing else: [::1] or [::1]:5672")
    return ClusterURLError(
        f"more than one ':' in a host: an IPv6 address needs brackets, as in [::1]:5672; {_ESCAPE}"
    )
