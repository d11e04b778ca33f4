"""No page, example or message installs the package by its bare name while no index has it.

Otherwise a stranger could register the name and have their package installed. Remove this test once the
package is published.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from haclient.version import install_extra, package_version
from tests.docs.pages import ROOT

FOLDERS = ("docs", "examples", "haclient", "broker_stub", "scripts", "benchmarks", "changes", ".github")
# `pip install ... haclient` with or without an extra. A file, a path and `haclient @ URL` are no bare name.
BARE_NAME = re.compile(
    r"pip3? install\b(?![^\n`]*--no-index)[^\n`]*?[\s'\"=]haclient(?![\w./-])(?!\[[\w,]*\] @)(?! @)"
)


def looked_at() -> list[Path]:
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    texts = {".md", ".py", ".sh", ".yml", ".toml"}
    return [*ROOT.glob("*.md"), *(path for path in below if path.suffix in texts or path.stem == path.name)]


@pytest.mark.parametrize(
    "text",
    [
        "pip install haclient",
        "pip install 'haclient[spark]'",
        'python -m pip install -U "haclient[metrics]" opentelemetry-sdk',
        "`/opt/bin/pip install haclient`",
    ],
)
def test_a_bare_name_is_found(text: str) -> None:
    assert BARE_NAME.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install '.[spark]'",
        "pip install './haclient-0.1.0-py3-none-any.whl[spark]'",
        "pip install haclient-0.1.0-py3-none-any.whl",
        "pip install git+https://example.org/haclient",
        "pip install 'haclient[spark] @ git+https://example.org/haclient'",
        "pip install --no-index --find-links wheels haclient",
        "pip install `x`; haclient does not",
    ],
)
def test_a_path_a_file_and_an_address_are_none(text: str) -> None:
    assert not BARE_NAME.search(text)


def test_nothing_installs_the_name_alone() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for path in looked_at()
        if path.is_file() and (hit := BARE_NAME.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_the_message_of_a_missing_extra_has_a_command_for_a_checkout_and_one_for_a_wheel() -> None:
    message = install_extra("spark")
    assert "pip install '.[spark]'" in message
    assert f"pip install './haclient-{package_version()}-py3-none-any.whl[spark]'" in message
    assert not BARE_NAME.search(message)


def test_the_wheels_on_the_pages_are_those_of_this_version() -> None:
    manifest = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert manifest
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {found for page in pages for found in re.findall(r"haclient-(\d.*?)-py3", page.read_text())}
    assert named == {manifest[1]}
