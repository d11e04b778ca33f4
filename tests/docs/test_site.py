"""``make docs`` builds the site without warnings or network access, and no page needs the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import haclient
import haclient.testing
from scripts.generate.api_names import fill_names
from scripts.site_hooks import moves_table, with_descriptions, with_labels, with_titles_and_paths
from tests.docs.pages import DOCS, ROOT

# Runs `python -m mkdocs` in a process that cannot open connections.
OFFLINE = """
import socket, sys
def refuse(*arguments):
    raise OSError(f"the network: {arguments}")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning as an error (``strict`` in mkdocs.yml)."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", OFFLINE, "build", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_it(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    pages = {path.relative_to(DOCS).as_posix().replace("README", "index") for path in DOCS.rglob("*.md")}
    assert built - {"404.md"} == pages


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = [
        (page.name, url)
        for page in site.rglob("*.html")
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
        for url in re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', tag)
    ]
    assert loaded == []


@pytest.mark.slow
def test_the_search_finds_a_method_and_the_code_of_an_error(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {each["location"] for each in index["docs"]}
    assert "errors.html#no-credit" in found
    assert any(each.endswith("Connection.create_sender") for each in found)


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    """The names that applications import: the package, its errors, its events and its brokers for tests."""
    page = (site / "api.html").read_text()
    described = {name.rpartition(".")[2] for name in re.findall(r'id="(haclient[\w.]*)"', page)}
    public = {*haclient.__all__, *haclient.errors.__all__, *haclient.testing.__all__}
    public |= {each.__name__ for each in typing.get_args(haclient.events.Event)}
    elsewhere = {"Message", "aio", "errors", "events", "BEHAVIOURS"}  # proton's, modules, a list
    assert public - described - elsewhere == set()


def test_a_git_host_shows_the_names_of_the_reference_and_what_they_are() -> None:
    """``python -m scripts.generate`` writes the tables."""
    page = (DOCS / "api.md").read_text()
    assert fill_names(page) == page


def test_a_link_to_a_page_has_its_title_and_one_to_a_file_outside_its_path() -> None:
    titles = {"errors.md": "Errors", "internals/search.md": "The states of a search"}
    text = "[errors.md](errors.md#codes), [it](errors.md), [FastAPI](../examples/fastapi_app.py)"
    expected = "[Errors](errors.md#codes), [it](errors.md), FastAPI (`examples/fastapi_app.py`)"
    assert with_titles_and_paths(text, "recipes.md", titles) == expected
    text = "[../errors.md](../errors.md), [search.md](search.md)"
    expected = "[Errors](../errors.md), [The states of a search](search.md)"
    assert with_titles_and_paths(text, "internals/README.md", titles) == expected


def test_a_state_diagram_is_a_table() -> None:
    table = moves_table("stateDiagram-v2\n    [*] --> idle\n    idle --> found: session <usable>\n")
    assert "<tr><td>idle</td><td>session &lt;usable&gt;</td><td>found</td></tr>" in table


def test_each_cell_of_a_table_with_three_columns_has_the_header_of_its_column() -> None:
    header = '<table><tr><th>option</th><th>usable?</th><th>"a" <code>b</code></th></tr>'
    rows = "<tr><td>a</td><td>1</td><td>s</td></tr><tr><td>b</td><td>2</td><td></td></tr></table>"
    labelled = with_labels(header + rows)
    assert (
        '<tr><td>b</td><td data-label="usable">2</td><td data-label="&quot;a&quot; b"></td></tr>' in labelled
    )
    narrow = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    assert with_labels(narrow) == narrow


def test_descriptions_replace_a_table_of_names() -> None:
    text = "One\n\n<!-- api\n::: haclient.connect\n    options: {}\n-->\n| name |\n<!-- /api -->\n\nTwo\n"
    assert with_descriptions(text) == "One\n\n::: haclient.connect\n    options: {}\n\nTwo\n"
