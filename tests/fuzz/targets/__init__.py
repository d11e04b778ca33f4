"""The targets, by name."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

NAMES = (
    "codec",
    "cluster_url",
    "configuration",
    "dns_answers",
    "selector",
    "selection",
    "send_json",
    "store_headers",
    "store",
    "server",
    "server_users",
    "server_tokens",
    "server_tls",
    "server_certificates",
    "listener",
    "client",
    "client_users",
    "client_tokens",
    "management",
    "replication_backup",
    "replication_primary",
    "site_link",
    "site_events",
)


def make(name: str) -> Target:
    """Return the target of this name. Its module is imported now, so that only its code is instrumented."""
    target: Target = import_module(f"tests.fuzz.targets.{name}").TARGET()
    return target
