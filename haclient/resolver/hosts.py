"""The names of a hosts file, and the one name that needs no file.  Pure.

Sources: hosts(5); RFC 6761 section 6.3 (``localhost`` is always the loopback).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

_LOOPBACK = ("127.0.0.1", "::1")


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Addresses by lower-case name, in the order of the file; lines that make no sense are skipped."""
    found: dict[str, dict[str, None]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if not _is_address(address):
            continue
        for name in names:
            found.setdefault(name.lower(), {})[address] = None
    return {name: tuple(addresses) for name, addresses in found.items()}


def local_addresses(name: str, hosts: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What is known of a name without DNS; empty when nothing is."""
    plain = name.removesuffix(".").lower()
    if plain in hosts:
        return hosts[plain]
    return _LOOPBACK if plain == "localhost" or plain.endswith(".localhost") else ()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
