"""Certificates for the members of a local cluster, made with the command ``openssl``.

Theory of operation
-------------------
The cluster's own authority signs one certificate, for loopback and all other hosts that the members listen
on. The authority's key is then removed, so that no further certificate can be signed with it.

Rules
-----
* The directory and the key are private.
* Existing certificates are reused while they are valid and have the same hosts. A client that knows the path
  of a permanent store can continue.

Python's standard library cannot make certificates, and a library that can is more than a client needs.
Sources: RFC 5280, section 4.2.1.6 (subject alternative names); req(1), x509(1).
"""

from __future__ import annotations

import ipaddress
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from broker_stub.permissions import DIRECTORY_MODE, FILE_MODE

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Long enough for a pair that is never stopped, and below the limit of verifiers (398 days, CA/Browser Forum).
_DAYS = 365
_ONE_DAY = 86_400
_TIMEOUT = 30.0
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256")
_CONFIGURATION = """\
[req]
prompt = no
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


class CertificateError(RuntimeError):
    """Certificates cannot be made; the text names the missing part."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of the members, and of the authority that clients trust."""

    certificate: Path
    key: Path
    ca: Path


def prepare(directory: Path, hosts: Iterable[str]) -> CertificateFiles:
    """Make certificates in a directory, or reuse existing ones.

    :param hosts: names and addresses of the members, in addition to loopback.
    :raises CertificateError: if ``openssl`` is missing or fails.
    :raises OSError: if the directory cannot be written.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        raise CertificateError(
            "--tls makes certificates with the command openssl, which is not installed (the package openssl);"
            " broker-stub serve --tls-cert and --tls-key take certificates of your own"
        )
    files = CertificateFiles(directory / "member.pem", directory / "member.key", directory / "ca.pem")
    names = ",".join(sorted(map(_alternative_name, {*_LOOPBACK, *hosts})))
    stamp = directory / "names"
    complete = all(path.exists() for path in (stamp, files.certificate, files.key, files.ca))
    if complete and stamp.read_text() == names and _is_valid(openssl, files.certificate):
        return files
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    _make(openssl, directory, files, names)
    stamp.write_text(names)
    return files


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _is_valid(openssl: str, certificate: Path) -> bool:
    """Return whether the certificate stays valid for another day."""
    command = [openssl, "x509", "-noout", "-checkend", str(_ONE_DAY), "-in", str(certificate)]
    return subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False).returncode == 0


def _make(openssl: str, directory: Path, files: CertificateFiles, names: str) -> None:
    authority_key, request = directory / "ca.key", directory / "member.csr"
    configuration = directory / "openssl.cnf"
    configuration.write_text(_CONFIGURATION.format(names=names))
    for key in (authority_key, files.key):
        key.unlink(missing_ok=True)
        key.touch(mode=FILE_MODE)
    days, configured = ("-days", str(_DAYS)), ("-config", str(configuration))
    # Verifiers distinguish authorities by name.
    own = f"/CN=broker-stub pair {secrets.token_hex(8)}"
    # proton compares an address with the common names only, not with the addresses in the certificate.
    member = "".join(f"/CN={name.removeprefix('IP:')}" for name in names.split(",") if name.startswith("IP:"))
    try:
        authority = ("req", "-x509", *_KEY, *days, *configured, "-subj", own, "-extensions", "authority")
        _run(openssl, *authority, "-keyout", str(authority_key), "-out", str(files.ca))
        asked = ("req", "-new", *_KEY, *configured, "-subj", member)
        _run(openssl, *asked, "-keyout", str(files.key), "-out", str(request))
        signed = ("x509", "-req", "-sha256", *days, "-in", str(request), "-out", str(files.certificate))
        issuer = ("-CA", str(files.ca), "-CAkey", str(authority_key))
        serial = ("-set_serial", f"0x{secrets.token_hex(8)}")
        _run(openssl, *signed, *issuer, *serial, "-extfile", str(configuration), "-extensions", "member")
    finally:
        for path in (authority_key, request, configuration):
            path.unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise CertificateError(f"{' '.join(command[:2])}: {lines[-1] if lines else 'no output'}")
