"""Certificates for tests, made by trustme on demand: real chains, no files in the tree."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


class Authority:
    """A separate certificate authority for tests.

    :param folder: for its files; one authority per folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self._issued = 0
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, *names: str, expired: bool = False, common_name: str | None = None) -> Certificate:
        """Issue a certificate for host names and addresses, with its key."""
        now = datetime.datetime.now(datetime.UTC)
        ends = now - datetime.timedelta(days=1) if expired else None
        begins = now - datetime.timedelta(days=30) if expired else None
        leaf = self._ca.issue_cert(*names, common_name=common_name, not_before=begins, not_after=ends)
        self._issued += 1
        chain, key = self._folder / f"{self._issued}.pem", self._folder / f"{self._issued}.key"
        for number, blob in enumerate(leaf.cert_chain_pems):
            blob.write_to_path(chain, append=number > 0)
        leaf.private_key_pem.write_to_path(key)
        return Certificate(self, chain, key)

    def client_context(self) -> ssl.SSLContext:
        """Return a client's context that trusts only this authority."""
        return ssl.create_default_context(cafile=self.file)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    authority: Authority
    chain: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return a server's context that shows this certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.chain, self.key)
        return context
