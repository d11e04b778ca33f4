"""The measured number of setups a second of this machine."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import trustme

from broker_stub.admission import calibration
from broker_stub.admission.user_file import UserFile, write_users
from haclient.engine.settings import SaslServer, Settings
from haclient.engine.tls import TlsFiles, server_context

PLAIN = Settings(container_id="member", sasl_server=SaslServer())


def test_a_rate_is_measured_that_some_machine_could_have() -> None:
    assert 10 < calibration.measure(PLAIN) < 1_000_000


def test_only_the_members_side_is_counted() -> None:
    assert calibration.handshake(PLAIN) > 0


def test_tls_is_measured_with_the_members_certificate(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = TlsFiles(certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))
    settings = Settings(container_id="member", sasl_server=SaslServer(), tls_context=server_context(files))
    plain = min(calibration.handshake(PLAIN) for _ in range(10))
    assert min(calibration.handshake(settings) for _ in range(10)) > plain


def test_a_setup_with_a_password_costs_more_where_every_client_needs_one(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"alice": "wonder"})
    users = UserFile(tmp_path / "users")
    logins = []
    for offered in (("SCRAM-SHA-256", "PLAIN"), ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")):
        settings = Settings(container_id="member", sasl_server=SaslServer(mechanisms=offered, users=users))
        with patch.object(calibration, "handshake", wraps=calibration.handshake) as measured:
            assert calibration.measure(settings) > 0
        server = measured.call_args.args[0].sasl_server
        logins.append(server.mechanisms)
        assert calibration.handshake(measured.call_args.args[0]) > 0
    assert logins == [("SCRAM-SHA-256",), ("ANONYMOUS",)]


def test_a_handshake_that_fails_counts_as_far_as_it_goes() -> None:
    refusing = Settings(container_id="member", sasl_server=SaslServer(mechanisms=("EXTERNAL",)))
    assert calibration.handshake(refusing) > 0
