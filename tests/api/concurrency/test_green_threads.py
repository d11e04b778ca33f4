"""If greenlets replace threads, the first call says so; ``tests/interop`` has both libraries."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import haclient
from haclient.errors import WrongThread
from haclient.utils import BlockingConnection


@pytest.fixture(params=["gevent", "eventlet"])
def replaced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the library that reports that it has replaced threads."""
    gevent = SimpleNamespace(is_module_patched=lambda name: name == "threading")
    eventlet = SimpleNamespace(is_monkey_patched=lambda name: name == "thread")
    module, found = {"gevent": ("gevent.monkey", gevent), "eventlet": ("eventlet.patcher", eventlet)}[
        request.param
    ]
    monkeypatch.setitem(sys.modules, module, found)  # type: ignore[arg-type]
    name: str = request.param
    return name


def test_the_first_call_says_what_does_not_work_with_greenlets(replaced: str) -> None:
    for _ in range(2):
        with pytest.raises(WrongThread, match=f"{replaced} has replaced threads.*: use {replaced}"):
            haclient.connect("amqp://127.0.0.1:1", timeout=1)


def test_the_first_connection_of_the_drop_in_says_so_too(replaced: str) -> None:
    with pytest.raises(WrongThread, match=f"{replaced} has replaced threads"):
        BlockingConnection("amqp://127.0.0.1:1", timeout=1)


def test_a_library_that_is_only_imported_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unpatched = SimpleNamespace(is_module_patched=lambda _: False, is_monkey_patched=lambda _: False)
    for name in ("gevent.monkey", "eventlet.patcher"):
        monkeypatch.setitem(sys.modules, name, unpatched)  # type: ignore[arg-type]
    with pytest.raises(haclient.errors.ConnectionGaveUp):
        haclient.connect("amqp://127.0.0.1:1", timeout=0.2)
