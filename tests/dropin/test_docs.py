"""Tests exist for each defect in docs/drop-in.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_PAGE = _HERE.parents[1] / "docs" / "drop-in.md"
_ROW = re.compile(r"^\| .* \| `(test_\w+\.py)::(test_\w+)` \|$", re.MULTILINE)
ROWS = _ROW.findall(_PAGE.read_text())


@pytest.mark.parametrize(("file", "test"), ROWS)
def test_a_defect_that_does_not_occur_has_its_test(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (_HERE / file).read_text(), re.MULTILINE)


def test_every_test_of_a_defect_has_its_row() -> None:
    listed = {test for _, test in ROWS}
    written = {
        test
        for file in sorted(_HERE.glob("test_defects*.py"))
        for test in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    assert written - listed <= {"test_telemetry_counts_what_a_loss_left_unsettled_and_what_is_sent_again"}
