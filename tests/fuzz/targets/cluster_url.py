"""Cluster URLs: an informative error, or a URL that is equal after it is formatted and parsed again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields, replace
from unittest import mock

from haclient.cluster_url import url
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import Options
from haclient.cluster_url.seed import MASK, Secret
from haclient.cluster_url.url import ClusterURL
from tests.fuzz.target import Defect, Target

_LONG_ENOUGH = 7


class ClusterURLs(Target):
    name = "cluster_url"
    words = (
        *(field.name.encode() + b"=" for field in fields(Options)),
        *(b"amqp://", b"amqps://", b"amqp+srv://", b"failover:(", b"[::1]:", b"none", b"true", b"65535"),
    )

    def run(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        try:
            parsed = ClusterURL.parse(text)
        except ClusterURLError as error:
            if not str(error):
                raise Defect("an error that says nothing") from error
            return
        written = str(parsed)
        if _masked(ClusterURL.parse(written)) != _masked(parsed):
            raise Defect(f"{written!r} is another URL")
        self._check_secrets(parsed, written)

    @staticmethod
    def _check_secrets(parsed: ClusterURL, written: str) -> None:
        without = repr(replace(parsed, seeds=tuple(replace(seed, password=None) for seed in parsed.seeds)))
        for seed in parsed.seeds:
            secret = "" if seed.password is None else seed.password.reveal()
            if len(secret) >= _LONG_ENOUGH and secret in written + repr(parsed) and secret not in without:
                raise Defect("a password is shown")

    def planted(self) -> AbstractContextManager[object]:
        """A non-default port is dropped after an IPv6 address."""
        original = url._format_host

        def wrong(endpoint: Endpoint) -> str:
            if ":" in endpoint.host and endpoint.port % 2:
                return url.format_host(endpoint.host)
            return original(endpoint)

        return mock.patch.object(url, "_format_host", wrong)


def _masked(parsed: ClusterURL) -> ClusterURL:
    return replace(
        parsed,
        seeds=tuple(
            replace(seed, password=None if seed.password is None else Secret(MASK)) for seed in parsed.seeds
        ),
    )


TARGET = ClusterURLs
