"""Arbiters by URL."""

from __future__ import annotations

import importlib.util

import pytest

from broker_stub.election.arbiter import open_arbiter


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/var/lib/arbiter",
        "directory",
        "directory:",
        "zookeeper:",
        "zookeeper:host:2181",
        "zookeeper:/path",
        "zookeeper:host/",
        "memory:name",
        "etcd:host/path",
    ],
)
def test_what_names_no_arbiter_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(ValueError, match=r"names no arbiter; it is one of directory:/path, zookeeper:"):
        open_arbiter(url)


@pytest.mark.parametrize(
    "hosts", ["planted@host:1", "planted:@host:1", ":planted@host:1", "u:planted@", "pl%3Aanted:x@host:1"]
)
def test_credentials_are_a_user_and_a_password_and_are_not_quoted(hosts: str) -> None:
    with pytest.raises(ValueError, match=r"USER:PASSWORD@HOST|has no colon") as refused:
        open_arbiter(f"zookeeper:{hosts}/path")
    assert "planted" not in str(refused.value)


def test_a_url_with_credentials_that_names_no_arbiter_is_quoted_without_them() -> None:
    with pytest.raises(ValueError, match=r"'zookeeper:...@host:1' names no arbiter") as refused:
        open_arbiter("zookeeper:u:planted@host:1")
    assert "planted" not in str(refused.value)


def test_without_kazoo_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"needs kazoo: pip install '\.\[zookeeper\]'"):
        open_arbiter("zookeeper:127.0.0.1:2181/haclient")
