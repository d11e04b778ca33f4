"""A client that cannot be built is skipped, and the reason is printed."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.interop.clients import __main__ as program
from tests.interop.clients import toolchains
from tests.interop.clients.building import MissingClientError
from tests.interop.clients.toolchains import CLIENTS


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and an empty cache."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(toolchains, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(toolchains, "_NODE", tmp_path / "node")
    return path


def tool(path: Path, name: str, script: str) -> None:
    program = path / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("name", ["qpid-jms", "protonj2", "go-amqp", "fe2o3-amqp", "rhea"])
def test_a_language_without_its_tools_says_what_to_install(tools: Path, name: str) -> None:
    client = next(client for client in CLIENTS if client.name == name)
    with pytest.raises(MissingClientError, match=r"is not installed \(Debian: [a-z-]+\)"):
        client.command()


def test_a_build_that_fails_says_why_and_is_tried_again(tools: Path) -> None:
    tool(tools, "go", 'echo "go: error: no route to the proxy" >&2; exit 1')
    client = next(client for client in CLIENTS if client.name == "go-amqp")
    for _ in range(2):
        with pytest.raises(MissingClientError, match="go build failed: go: error: no route to the proxy"):
            client.command()


def test_what_is_built_is_not_built_again(tools: Path) -> None:
    client = next(client for client in CLIENTS if client.name == "go-amqp")
    tool(tools, "go", "exit 0")
    first = client.command()
    tool(tools, "go", "exit 1")
    assert client.command() == first


def test_a_client_that_is_skipped_is_printed_and_counted_and_a_run_of_nothing_fails(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["clients", "--only", "go-amqp"])
    assert program.main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert "go-amqp 1.7.0         skipped: go is not installed (Debian: golang-go)" in printed
    assert printed[-1] == "0 passed, 0 failed, 1 skipped"
