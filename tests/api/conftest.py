"""Both faces."""

from __future__ import annotations

import pytest

from tests.peers.apis import FACES, Face


@pytest.fixture(params=FACES, ids=lambda face: face.name)
def face(request: pytest.FixtureRequest) -> Face:
    """One face after the other."""
    return request.param()
