from __future__ import annotations

import pytest

_MEASURED = pytest.StashKey[list[str]]()


class Measured:
    """Measured times, printed after all tests."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def __call__(self, line: str) -> None:
        self._lines.append(line)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MEASURED] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_MEASURED, [])
    if lines:
        terminalreporter.section("measured under Pacemaker")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Collects measured times."""
    return Measured(request.config.stash[_MEASURED])
