"""Fixtures over both APIs."""

from __future__ import annotations

import pytest

from tests.peers.apis import API, APIS


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> API:
    """Return one API after the other."""
    return request.param()
