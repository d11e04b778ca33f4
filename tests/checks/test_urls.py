"""The project's address is defined in ``pyproject.toml``, and is the same everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_urls import PAGES, PLACEHOLDER, Addresses, complaints, main, write

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY, CONTACT = "https://git.example.net/them/haclient", "security@example.net"
NOT_YET = Addresses(f"https://{PLACEHOLDER}/haclient", f"maintainers@{PLACEHOLDER}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The checked files, before the addresses are known."""
    known = Addresses.read(ROOT)
    for page in (page for pattern in PAGES for page in ROOT.glob(pattern)):
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text().replace(known.repository, NOT_YET.repository)
        copy.write_text(text.replace(known.contact, NOT_YET.contact))
    return tmp_path


def fill_in(tree: Path) -> None:
    """Put addresses into the manifest, as the publisher does once."""
    manifest = tree / "pyproject.toml"
    text = manifest.read_text().replace(NOT_YET.repository, REPOSITORY, 1)
    manifest.write_text(text.replace(NOT_YET.contact, CONTACT))


def test_every_place_agrees_with_the_manifest() -> None:
    assert list(complaints(ROOT)) == []


def test_a_new_address_shows_every_other_place(tree: Path) -> None:
    fill_in(tree)
    named = {line.partition(":")[0] for line in complaints(tree)}
    assert {"pyproject.toml", "docs/platforms.md", ".github/ISSUE_TEMPLATE/config.yml"} <= named
    assert {"SECURITY.md", "CODE_OF_CONDUCT.md"} <= named


def test_write_changes_all_of_them(tree: Path) -> None:
    fill_in(tree)
    write(tree)
    assert list(complaints(tree, published=True)) == []
    pages = [page.read_text() for pattern in PAGES for page in tree.glob(pattern)]
    assert not any(f"https://{PLACEHOLDER}/haclient" in page for page in pages)
    assert f"git+{REPOSITORY} " in (tree / "docs" / "platforms.md").read_text()
    assert f'Issues = "{REPOSITORY}/issues"' in (tree / "pyproject.toml").read_text()


def test_a_placeholder_is_refused_before_anything_is_published(tree: Path) -> None:
    manifest = tree / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace(NOT_YET.contact, "a@example.net"))
    assert any("placeholder" in line for line in complaints(tree, published=True))
    assert not any("placeholder" in line for line in complaints(tree))


def test_an_address_that_is_not_the_repository_of_this_name_is_refused(tree: Path) -> None:
    manifest = tree / "pyproject.toml"
    manifest.write_text(
        manifest.read_text().replace("https://example.org/haclient", "https://example.net/fork")
    )
    (line,) = complaints(tree)
    assert line.endswith("not https://example.net/fork")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"git clone https://{PLACEHOLDER}/haclient.git", f"git clone {REPOSITORY}.git"),
        (f"git clone https://{PLACEHOLDER}/haclient.", f"git clone {REPOSITORY}."),
        ("https://pypi.example/project/haclient", "https://pypi.example/project/haclient"),
        (f"https://{PLACEHOLDER}/haclient.github", f"https://{PLACEHOLDER}/haclient.github"),
    ],
)
def test_write_changes_an_address_of_the_repository_and_no_other(tree: Path, text: str, written: str) -> None:
    fill_in(tree)
    (tree / "page.md").write_text(text)
    write(tree)
    assert (tree / "page.md").read_text() == written


@pytest.mark.parametrize("address", [f"https://www.{PLACEHOLDER}/chat", f"<help@{PLACEHOLDER}>"])
def test_a_placeholder_in_any_page_is_refused_before_anything_is_published(tree: Path, address: str) -> None:
    fill_in(tree)
    write(tree)
    (tree / "page.md").write_text(f"A page.\n\nAsk at {address}.\n")
    assert list(complaints(tree)) == []
    (line,) = complaints(tree, published=True)
    assert line.startswith("page.md:3: ")


def test_to_write_and_to_check_before_publishing_are_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["check_urls.py", "--write", "--published"])
    with pytest.raises(SystemExit, match="2"):
        main()
