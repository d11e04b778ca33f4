"""Certificates of a local cluster: their verification, and the files that remain."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from broker_stub.local_cluster.certificates import CertificateError, CertificateFiles, prepare
from tests.certificates import Authority


@pytest.fixture(autouse=True)
def _open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def handshake(files: CertificateFiles, name: str) -> None:
    """Make a handshake of a client that trusts the authority only, with a server of that name."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=files.ca)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with ours, contextlib.suppress(OSError):
            server.wrap_socket(ours, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(theirs, server_hostname=name):
            pass
    finally:
        theirs.close()
        thread.join()


def test_clients_that_verify_accept_them_for_loopback_and_for_the_given_hosts(tmp_path: Path) -> None:
    files = prepare(tmp_path / "tls", ["127.0.0.1", "broker.test", "192.0.2.7"])
    for name in ("127.0.0.1", "localhost", "::1", "broker.test", "192.0.2.7"):
        handshake(files, name)
    for name in ("192.0.2.8", "other.test"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(files, name)


def test_everything_is_private_and_nobody_can_sign_another_one(tmp_path: Path) -> None:
    files = prepare(tmp_path / "tls", [])
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700
    assert files.key.stat().st_mode & 0o777 == 0o600
    found = {path.name for path in (tmp_path / "tls").iterdir()}
    assert found == {"ca.pem", "member.pem", "member.key", "names"}
    assert "PRIVATE KEY" not in files.ca.read_text() + files.certificate.read_text()


def test_they_are_used_again_while_they_are_good(tmp_path: Path) -> None:
    first = prepare(tmp_path, []).certificate.read_bytes()
    assert prepare(tmp_path, ["127.0.0.1"]).certificate.read_bytes() == first
    files = prepare(tmp_path, ["broker.test"])
    assert files.certificate.read_bytes() != first
    handshake(files, "broker.test")


def test_expired_ones_are_replaced(tmp_path: Path) -> None:
    files = prepare(tmp_path / "tls", [])
    old = Authority(tmp_path / "ca").issue("127.0.0.1", expired=True)
    shutil.copy(old.chain, files.certificate)
    handshake(prepare(tmp_path / "tls", []), "127.0.0.1")


@pytest.mark.parametrize("missing", ["ca.pem", "member.pem", "member.key", "names"])
def test_half_a_directory_is_made_whole(tmp_path: Path, missing: str) -> None:
    prepare(tmp_path, [])
    (tmp_path / missing).unlink()
    handshake(prepare(tmp_path, []), "localhost")


def test_without_openssl_the_error_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertificateError, match=r"openssl, which is not installed .* --tls-cert"):
        prepare(tmp_path / "tls", [])
    assert not (tmp_path / "tls").exists()


def test_an_openssl_that_refuses_is_quoted_and_leaves_no_key_of_an_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("openssl")
    fake = tmp_path / "openssl"
    fake.write_text(f'#!/bin/sh\nif [ "$1" = x509 ]; then echo no clock >&2; exit 1; fi\nexec {real} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertificateError, match="no clock"):
        prepare(tmp_path / "tls", [])
    assert not (tmp_path / "tls" / "ca.key").exists()
    assert not (tmp_path / "tls" / "names").exists()
