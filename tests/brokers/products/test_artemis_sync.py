"""``is_in_sync``: an Artemis backup would take over, by the logs of both members."""

from __future__ import annotations

import re

import pytest

from tests.brokers.products.artemis import is_in_sync
from tests.brokers.products.artemis_config import Kind

SENDS, GAVE_UP = "AMQ221025 sending a file", "AMQ222092 connection to the backup failed"
WAITS, SYNC = "awaiting connection", "AMQ221024 synchronized"


class _Log:
    def __init__(self, *lines: str) -> None:
        self._text = " ".join(lines)

    def last(self, pattern: str) -> int:
        return max((found.start() for found in re.finditer(pattern, self._text)), default=-1)


@pytest.mark.parametrize(
    ("primary", "backup", "synced"),
    [
        ((SENDS,), (WAITS, SYNC), True),
        ((), (WAITS, SYNC), True),
        ((SENDS,), (WAITS,), False),
        ((SENDS,), (WAITS, SYNC, WAITS), False),
        ((SENDS, GAVE_UP), (WAITS, SYNC), False),
        ((SENDS, GAVE_UP, SENDS), (WAITS, SYNC), True),
    ],
)
def test_a_backup_that_its_primary_has_given_up_is_not_in_sync(
    primary: tuple[str, ...], backup: tuple[str, ...], synced: bool
) -> None:
    assert is_in_sync(Kind.LOCKED, _Log(*backup), _Log(*primary)) is synced
