"""The domains that can be assumed to have one owner."""

from __future__ import annotations

import pytest

from haclient.cluster_url.domain import parent_domain


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("a.example.com", "example.com"),
        ("A.Example.COM.", "example.com"),
        ("a.b.example.com", "b.example.com"),
        ("a.com", None),
        ("localhost", None),
        ("a.co.uk", None),
        ("a.firm.co.uk", "firm.co.uk"),
        ("10.1.2.3", None),
        ("fd00::1", None),
        ("a..com", None),
        ("", None),
    ],
)
def test_the_parent_domain_needs_an_owner(host: str, domain: str | None) -> None:
    """``com`` and ``co.uk`` have no single owner, and an address has no parent."""
    assert parent_domain(host) == domain
