"""Make a release: ``make release VERSION=1.2.3``, with ``DRY_RUN=1`` to see it and keep nothing.

Rules
-----
* Everything that can fail happens in a clone in a temporary folder: version, changelog, commit, wheel, sdist,
  checksums.  Until all of it has succeeded, checkout and repository stay untouched, also after an interrupt.
* Then three short steps follow: copy the files into ``dist/``, set the tag, move ``main`` forward to the tag.
  They are refused if the checkout has changed meanwhile.  If ``main`` cannot move, the tag is deleted again.
  After an interrupt between the last two, the next run names the command that finishes.
* No command gets the variables that bind git to one repository (``GIT_DIR`` and the like).  A hook or
  ``git rebase --exec`` exports them, and the clone's commits would go to the user's repository.
* Nothing is uploaded: the last lines name the command that does.
* A hand-written section ``## [1.2.3] - unreleased`` becomes the section of the release.  The notes of
  ``changes/`` follow its text under the same headings.  Without such a section, towncrier's section
  becomes the first of the changelog.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NoReturn

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
BRANCH = "main"
SUMS = "SHA256SUMS"
SIGNALED = 128  # exit code of a program ended by a signal, less the signal's number (POSIX shells)
NO_NOTES = "No significant changes."  # towncrier's text without a fragment

_VERSION = re.compile(r'^(version = ")([^"]+)(")$', re.MULTILINE)
_WHEEL = re.compile(r"(haclient-)\d[\w.!+]*(-py3-none-any\.whl)")
_SECTION = re.compile(r"^## ", re.MULTILINE)
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # Keep a Changelog 1.1.0


class ReleaseError(Exception):
    """The release cannot be made.  The text says why, and how to go on."""


class Interrupt(KeyboardInterrupt):
    """A signal that ends the release.

    :param number: the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interrupt(number: int, _: FrameType | None) -> NoReturn:
    """Raise `Interrupt` on a signal, so that the temporary clone is removed."""
    raise Interrupt(number)


@cache
def repository_variables() -> frozenset[str]:
    """Return the environment variables that bind git to one repository."""
    command = ["git", "rev-parse", "--local-env-vars"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    # options of `git -c`, such as safe.directory, hold for any repository
    return frozenset(names) - {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}


def output(*command: str, cwd: Path) -> str:
    """Run a command without the variables of `repository_variables`, and return its output.

    :raises ReleaseError: with the command's error text, if it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in repository_variables()}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def git(*arguments: str, cwd: Path) -> str:
    """Run git and return its output without the last newline."""
    return output("git", *arguments, cwd=cwd).rstrip("\n")


# -- checks before a release -------------------------------------------------------------------------------


def check(root: Path, wanted: str, *, dry_run: bool) -> str:
    """Refuse a release that must not be made from this checkout; return the checkout's commit.

    :param dry_run: print placeholder addresses instead of refusing them.
    :raises ReleaseError: with the reason.
    """
    _check_version(wanted, _VERSION.findall((root / "pyproject.toml").read_text())[0][1])
    head = git("rev-parse", "HEAD", cwd=root)
    branch = git("rev-parse", "--abbrev-ref", "HEAD", cwd=root)
    if branch != BRANCH:
        raise ReleaseError(f"a release is made on {BRANCH}, and this is {branch}: git switch {BRANCH}")
    if changed := git("status", "--porcelain", cwd=root):
        raise ReleaseError(f"the tree has changes that are not committed; commit or stash them:\n{changed}")
    _check_tag(root, f"v{wanted}")
    try:  # the workflow would refuse placeholders only when the tag is public
        output(sys.executable, "scripts/check_urls.py", "--published", cwd=root)
    except ReleaseError as error:
        if not dry_run:
            raise
        print(f"the release itself will be refused: {error}\n")
    return head


def _check_version(wanted: str, present: str) -> None:
    if not wanted:
        raise ReleaseError("name the version: make release VERSION=1.2.3")
    try:
        version = Version(wanted)
    except InvalidVersion:
        raise ReleaseError(f"{wanted!r} is no version of PEP 440, such as 1.2.3 or 1.2.3rc1") from None
    if str(version) != wanted:
        raise ReleaseError(f"{wanted!r} is written {str(version)!r} in PEP 440's normal form: use that")
    if version.local:
        raise ReleaseError(f"{wanted!r} is a local version, which no index takes: leave out +{version.local}")
    if version < Version(present):
        raise ReleaseError(f"{wanted} is lower than the present version, {present}")


def _check_tag(root: Path, tag: str) -> None:
    if not git("tag", "--list", tag, cwd=root):
        return
    base, head = (git("rev-parse", name, cwd=root) for name in (f"{tag}^{{commit}}^", "HEAD"))
    if base == head:  # interrupted before the last step
        raise ReleaseError(f"the tag {tag} is there, and {BRANCH} is not: git merge --ff-only {tag}")
    raise ReleaseError(f"the tag {tag} exists already: choose the next version")


# -- changed files -----------------------------------------------------------------------------------------


def prepare(tree: Path, version: str, date: str) -> str:
    """Turn the files of a work tree into the files of the release, and return its section of the changelog.

    :raises ReleaseError: if ``changes/`` has anything but well-formed notes, so that no note is lost.
    """
    output(sys.executable, "scripts/check_changes.py", cwd=tree)
    manifest = tree / "pyproject.toml"
    manifest.write_text(_VERSION.sub(rf"\g<1>{version}\g<3>", manifest.read_text(), count=1))
    for page in [tree / "README.md", *(tree / "docs").rglob("*.md")]:
        text = page.read_text()
        if (renamed := _WHEEL.sub(rf"\g<1>{version}\g<2>", text)) != text:
            page.write_text(renamed)
    log = tree / "CHANGELOG.md"
    changelog, section = with_release(log.read_text(), version, _notes(tree, version, date))
    log.write_text(changelog)
    for fragment in (tree / "changes").glob("*.md"):
        if fragment.name != "README.md":
            fragment.unlink()
    return section


def _notes(tree: Path, version: str, date: str) -> str:
    """Return the section that towncrier makes of the fragments."""
    command = ("-m", "towncrier", "build", "--draft", "--version", version, "--date", date)
    return output(sys.executable, *command, cwd=tree).strip() + "\n"


def with_release(changelog: str, version: str, notes: str) -> tuple[str, str]:
    """Return the changelog with a release, and the release's section alone.

    :param notes: towncrier's section, with a title in its first line.
    :raises ReleaseError: if the release has no text, or the changelog already has its section.
    """
    title, _, body = notes.partition("\n")
    body = "" if body.strip() == NO_NOTES else body.strip()
    head, *sections = _SECTION.split(changelog)
    unreleased = f"[{version}] - unreleased"
    for other in re.findall(r"^## \[(.+)\] - unreleased$", changelog, re.MULTILINE):
        if other != version:
            raise ReleaseError(f"CHANGELOG.md has [{other}] unreleased: release that first")
    mine = [section for section in sections if section.startswith(f"[{version}]")]
    if mine and not mine[0].startswith(f"{unreleased}\n"):
        raise ReleaseError(f"CHANGELOG.md has a section [{version}] already: choose the next version")
    if mine:
        body = merged(mine[0].removeprefix(unreleased).strip(), body)
        sections.remove(mine[0])
    if not body:
        raise ReleaseError("changes/ has no note: a release without a change that users see is none")
    section = f"{title}\n\n{body}\n"
    return "\n".join([head + section, *(f"## {each.strip()}\n" for each in sections)]), section


def merged(first: str, second: str) -> str:
    """Merge two texts: each heading once, in the order of Keep a Changelog, other headings last."""
    texts: dict[str, list[str]] = {"": []}  # the key of the introduction, which has no heading
    for body in (first, second):
        introduction, *parts = _HEADING.split(body)
        texts[""].append(introduction)
        for heading, text in zip(parts[::2], parts[1::2], strict=True):
            texts.setdefault(heading.strip(), []).append(text)
    order = ["", *_HEADINGS, *(heading for heading in texts if heading not in _HEADINGS and heading)]
    blocks: list[str] = []
    for heading in order:
        if present := [text.strip() for text in texts.get(heading, ()) if text.strip()]:
            blocks += [*([f"### {heading}"] if heading else []), *present]
    return "\n\n".join(blocks)


def build(tree: Path) -> list[Path]:
    """Build the sdist, the wheel and the file of their checksums; return all three paths."""
    output(sys.executable, "-m", "hatchling", "build", "-d", "dist", cwd=tree)
    built = sorted((tree / "dist").iterdir())
    sums = tree / "dist" / SUMS
    sums.write_text(
        "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built)
    )
    return [*built, sums]


# -- the release -------------------------------------------------------------------------------------------


@contextmanager
def clone_of(root: Path) -> Iterator[Path]:
    """Clone the checkout into a temporary folder, without a trace in the repository."""
    with tempfile.TemporaryDirectory(prefix="haclient-release-") as folder:
        tree = Path(folder) / "tree"
        git("clone", "--quiet", "--shared", "--no-tags", str(root), str(tree), cwd=root)
        yield tree


def release(root: Path, version: str, *, dry_run: bool) -> None:
    """Make the release, or show it.

    :raises ReleaseError: if the release must not be made, or a command failed.  Branch, tags and work tree
        are
        then unchanged; ``dist/``, which git ignores, may have the files.
    """
    head = check(root, version, dry_run=dry_run)
    tag, date = f"v{version}", datetime.now(UTC).date().isoformat()
    # the repository's own configuration may set the committer and the signing key
    own = ("-c", f"include.path={root / git('rev-parse', '--git-common-dir', cwd=root) / 'config'}")
    with clone_of(root) as tree:
        section = prepare(tree, version, date)
        git("add", "--all", cwd=tree)
        # a hook would need .make-venv, which a clone lacks
        git(*own, "commit", "--quiet", "--no-verify", "--message", f"Release {version}", cwd=tree)
        print(section)
        print(git("show", "--stat", "--format=commit: %s", cwd=tree))
        built = build(tree)
        print(f"\ntag: {tag}\n\ndist/{SUMS}:\n{built[-1].read_text()}")
        if dry_run:
            print("dry run: nothing was kept")
            return
        base = git("rev-parse", "HEAD^", cwd=tree)
        if not head == base == check(root, version, dry_run=False):
            raise ReleaseError(f"{BRANCH} got a commit while the release was built: run it again")
        dist = root / "dist"
        dist.mkdir(exist_ok=True)
        for path in built:
            shutil.copy2(path, dist)
        git(*own, "tag", "--annotate", "--message", f"haclient {version}", tag, cwd=tree)
        git("fetch", "--quiet", "--no-tags", str(tree), f"refs/tags/{tag}:refs/tags/{tag}", cwd=root)
    try:
        git("merge", "--quiet", "--ff-only", tag, cwd=root)
    except ReleaseError:
        git("tag", "--delete", tag, cwd=root)
        raise
    print(f"released {version} here; to publish it: git push --atomic origin {BRANCH} {tag}")


def main() -> int:
    """Make or show the release that the arguments name, and return the exit code."""
    parser = argparse.ArgumentParser(description="Make a release of haclient.")
    parser.add_argument("version", help="the version to release, such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="show everything, keep nothing")
    arguments = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(ending, interrupt)
    try:
        release(ROOT, arguments.version, dry_run=arguments.dry_run)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    except Interrupt as ended:
        print("release: interrupted", file=sys.stderr)
        return SIGNALED + ended.number
    return 0


if __name__ == "__main__":
    sys.exit(main())
