"""Refuse an address of the project that differs from the one in ``pyproject.toml``.

``.make-venv/bin/python scripts/check_urls.py [--write | --published]``

The address of the repository is ``project.urls.Repository``; the contact is the e-mail address of the first
of ``project.maintainers``.  Pages and forms repeat both.  Change them in ``pyproject.toml``, then
``--write`` changes every other place.  ``--published`` also refuses the placeholders at example.org;
the release runs it before anything is uploaded to an index.

Rules
-----
* Any ``https://HOST/.../haclient`` in the files of ``PAGES`` is the repository's address, with or without
  ``.git``.  If the host is a package index, the address is the package's page and stays.
* Any e-mail address in ``CONTACT_PAGES`` is the contact.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = "example.org"  # RFC 2606: reserved, so never a stranger's address
PAGES = (
    "pyproject.toml",
    "mkdocs.yml",
    "*.md",
    "docs/**/*.md",
    "changes/*.md",
    ".github/**/*.md",
    ".github/**/*.yml",
)
CONTACT_PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md")

_INDEXES = frozenset({"pypi", "piwheels", "anaconda"})  # labels in the host names of package indexes

_REPOSITORY = re.compile(r"https://([\w.-]+)(?::\d+)?(?:/[\w.-]+)*?/haclient(?=(?:\.git)?(?![\w.-]*\w))")
_CONTACT = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PLACEHOLDER = re.compile(rf"(?:https://|[\w.+-]+@)(?:[\w-]+\.)*{re.escape(PLACEHOLDER)}\b")


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the project.

    :param repository: without a slash or ``.git`` at its end.
    """

    repository: str
    contact: str

    @classmethod
    def read(cls, root: Path) -> Addresses:
        """Read the addresses from ``pyproject.toml``."""
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
        return cls(project["urls"]["Repository"], project["maintainers"][0]["email"])

    def in_page(self, name: str, text: str) -> str:
        """Return the text of a page with these addresses in place of its own."""
        text = _REPOSITORY.sub(self._instead_of, text)
        return _CONTACT.sub(self.contact, text) if name in CONTACT_PAGES else text

    def _instead_of(self, found: re.Match[str]) -> str:
        return found[0] if _INDEXES & set(found[1].split(".")) else self.repository


def pages(root: Path) -> Iterator[Path]:
    """Return the files that may contain an address of the project."""
    for pattern in PAGES:
        yield from sorted(root.glob(pattern))


def complaints(root: Path, *, published: bool = False) -> Iterator[str]:
    """Yield a line for each line of a file with a wrong address.

    :param published: refuse placeholders too.
    """
    addresses = Addresses.read(root)
    if not _REPOSITORY.fullmatch(addresses.repository):
        yield f"pyproject.toml: the repository is https://HOST/.../haclient, not {addresses.repository}"
        return
    for page in pages(root):
        name = page.relative_to(root).as_posix()
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if (expected := addresses.in_page(name, line)) != line:
                yield f"{name}:{number}: {line.strip()!r}: pyproject.toml has it as {expected.strip()!r}"
            elif published and (found := _PLACEHOLDER.search(line)):
                yield f"{name}:{number}: {found[0]} is a placeholder: mend pyproject.toml, then --write"


def write(root: Path) -> None:
    """Put the addresses of ``pyproject.toml`` into every page."""
    addresses = Addresses.read(root)
    for page in pages(root):
        text = page.read_text()
        mended = addresses.in_page(page.relative_to(root).as_posix(), text)
        if mended != text:
            page.write_text(mended)


def main() -> int:
    """Print every wrong address and return 1 if there is one."""
    parser = argparse.ArgumentParser(description="Refuse an address that is not the one in pyproject.toml.")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--write", action="store_true", help="change every other place")
    one.add_argument("--published", action="store_true", help="refuse the placeholders too")
    options = parser.parse_args()
    if options.write:
        write(ROOT)
    found = list(complaints(ROOT, published=options.published))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
