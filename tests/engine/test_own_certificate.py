"""The certificate that a server shows, read from its files."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from haclient.engine.tls import TlsFiles, own_certificate, server_context
from tests.certificates import Authority


def test_it_is_the_first_one_in_the_file(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("127.0.0.1")
    combined = tmp_path / "combined.pem"
    combined.write_bytes(own.key.read_bytes() + own.chain.read_bytes() + own.authority.file.read_bytes())
    files = TlsFiles(certificate=str(combined))
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(files).wrap_bio(ours, theirs, server_side=True)
    client = own.authority.client_context().wrap_bio(theirs, ours, server_hostname="127.0.0.1")
    for end in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert own_certificate(files) == client.getpeercert(binary_form=True)


def test_a_file_without_a_certificate_has_none(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("-----BEGIN TRUSTED CERTIFICATE-----")
    assert own_certificate(TlsFiles(certificate=str(other))) is None
