"""``make release`` makes a whole release or none, and its dry run leaves no traces."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts import release
from scripts.check_urls import PLACEHOLDER, Addresses
from scripts.release import ReleaseError

pytestmark = pytest.mark.slow  # a release runs git and two programs a dozen times

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    ".gitignore",
    "LICENSE",
    "README.md",
    "changes/README.md",
    "docs/platforms.md",
    "pyproject.toml",
    "scripts/check_changes.py",
    "scripts/check_urls.py",
    "scripts/release.py",
)
CHANGELOG = """# Changelog

Newest first.

## [0.1.0] - unreleased

The first release.

### Added

- A client.
"""
CONTACT = "maintainers@example.net"
NOTE = "A send that waits for the window ends by its timeout."


def git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the committer, independent of the machine's configuration and a hook's environment."""
    for name in release.repository_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A maintainer")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "maintainer@example.org")


def present_version() -> str:
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def begin(tree: Path) -> Path:
    """Make a repository of a folder."""
    git("init", "--quiet", "--initial-branch", "main", cwd=tree)
    commit(tree)
    return tree


def commit(tree: Path) -> None:
    git("add", "--all", cwd=tree)
    git("commit", "--quiet", "--message", "A change", cwd=tree)


def note(tree: Path, name: str = "+window.fixed.md", text: str = NOTE) -> None:
    (tree / "changes" / name).write_text(text)
    commit(tree)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with few files, and one note."""
    tree = tmp_path / "project"
    for name in FILES:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for package in ("haclient", "broker_stub"):
        (tree / package).mkdir()
        (tree / package / "__init__.py").touch()
    known, version = Addresses.read(ROOT), present_version()
    for page in (*tree.glob("*.*"), *tree.glob("docs/*")):  # as before the first release
        text = page.read_text().replace(known.repository, "https://example.net/haclient")
        text = text.replace(known.contact, CONTACT).replace(f"haclient-{version}", "haclient-0.1.0")
        page.write_text(text.replace(f'\nversion = "{version}"', '\nversion = "0.1.0"'))
    (tree / "CHANGELOG.md").write_text(CHANGELOG)
    begin(tree)
    note(tree)
    return tree


def state(tree: Path) -> tuple[str, ...]:
    """Return everything that a release may change."""
    return (
        *(
            git(*command, cwd=tree)
            for command in (("rev-parse", "HEAD"), ("tag",), ("status", "--porcelain"))
        ),
        git("worktree", "list", cwd=tree),
        str(sorted(path.name for path in (tree / "dist").glob("*"))),
    )


def test_a_dry_run_shows_the_release_and_leaves_the_tree_untouched(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(project)
    release.release(project, "0.1.0", dry_run=True)
    assert state(project) == before
    shown = capsys.readouterr().out
    assert re.search(r"^## \[0\.1\.0\] - \d{4}-\d\d-\d\d$", shown, re.MULTILINE)
    assert f"- {NOTE}" in shown
    assert "tag: v0.1.0" in shown
    assert re.search(r"^[0-9a-f]{64}  haclient-0\.1\.0-py3-none-any\.whl$", shown, re.MULTILINE)


def test_a_repository_in_the_environment_as_hooks_have_it_stays_untouched(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file.txt").touch()
    begin(other)
    before = state(other), state(project)
    with monkeypatch.context() as hook:
        hook.setenv("GIT_DIR", str(other / ".git"))
        hook.setenv("GIT_WORK_TREE", str(other))
        hook.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
        release.release(project, "0.1.0", dry_run=True)
    assert (state(other), state(project)) == before


def test_a_release_is_a_commit_a_tag_and_files_with_checksums(project: Path) -> None:
    (project / "CHANGELOG.md").write_text("# Changelog\n")
    commit(project)
    head = git("rev-parse", "HEAD", cwd=project)
    release.release(project, "0.2.0rc1", dry_run=False)
    assert git("status", "--porcelain", cwd=project) == ""
    assert git("rev-parse", "HEAD^", cwd=project) == head
    assert git("rev-parse", "HEAD", cwd=project) == git("rev-parse", "v0.2.0rc1^{commit}", cwd=project)
    assert git("log", "-1", "--format=%s", cwd=project) == "Release 0.2.0rc1"
    assert git("worktree", "list", cwd=project).count("\n") == 0
    assert 'version = "0.2.0rc1"' in (project / "pyproject.toml").read_text()
    assert "./haclient-0.2.0rc1-py3-none-any.whl" in (project / "docs" / "platforms.md").read_text()
    assert [path.name for path in (project / "changes").iterdir()] == ["README.md"]
    sums = (project / "dist" / "SHA256SUMS").read_text().splitlines()
    files = {line.split()[1]: line.split()[0] for line in sums}
    assert set(files) == {"haclient-0.2.0rc1-py3-none-any.whl", "haclient-0.2.0rc1.tar.gz"}
    for name, expected in files.items():
        assert hashlib.sha256((project / "dist" / name).read_bytes()).hexdigest() == expected
    with zipfile.ZipFile(project / "dist" / "haclient-0.2.0rc1-py3-none-any.whl") as wheel:
        metadata = wheel.read("haclient-0.2.0rc1.dist-info/METADATA").decode()
    assert "\nVersion: 0.2.0rc1\n" in metadata
    assert "\nProject-URL: Repository, https://" in metadata
    with tarfile.open(project / "dist" / "haclient-0.2.0rc1.tar.gz") as sdist:
        assert not [name for name in sdist.getnames() if "/dist/" in name or "/.git/" in name]


def test_a_section_that_was_written_by_hand_becomes_that_of_its_release_and_the_next_comes_first(
    project: Path,
) -> None:
    release.release(project, "0.1.0", dry_run=False)
    first = (project / "CHANGELOG.md").read_text()
    assert "unreleased" not in first
    assert re.search(r"The first release\.\n\n### Added\n\n- A client\.\n\n### Fixed\n\n- A send", first)
    note(project, "7.added.md", "A new option.")
    release.release(project, "0.2.0", dry_run=False)
    text = (project / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(.+)\]", text, re.MULTILINE) == ["0.2.0", "0.1.0"]
    assert "- A new option. (#7)" in text.partition("## [0.1.0]")[0]
    assert text.startswith("# Changelog\n\nNewest first.\n\n## [0.2.0] - ")
    assert text.endswith(first.partition("## ")[2])


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("", "name the version: make release VERSION=1.2.3"),
        ("one", "is no version of PEP 440"),
        ("1.0-rc1", "normal form"),
        ("v1.0", "normal form"),
        ("1.0+mine", "a local version"),
        ("0.0.9", "lower than the present version, 0.1.0"),
        ("0.1.0rc1", "lower than the present version, 0.1.0"),
    ],
)
def test_a_version_that_cannot_follow_is_refused(project: Path, version: str, reason: str) -> None:
    refused(project, version, reason)


def refused(tree: Path, version: str, reason: str) -> None:
    before = state(tree)
    with pytest.raises(ReleaseError, match=re.escape(reason)):
        release.release(tree, version, dry_run=False)
    assert state(tree) == before


def test_a_placeholder_address_is_refused_and_a_dry_run_shows_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "SECURITY.md").write_text(f"Write to <help@{PLACEHOLDER}>.\n")
    (project / "pyproject.toml").write_text(
        (project / "pyproject.toml").read_text().replace(CONTACT, f"help@{PLACEHOLDER}")
    )
    commit(project)
    refused(project, "0.1.0", f"SECURITY.md:1: help@{PLACEHOLDER} is a placeholder")
    release.release(project, "0.1.0", dry_run=True)
    assert "SECURITY.md:1: " in capsys.readouterr().out


def test_a_tree_with_changes_is_refused(project: Path) -> None:
    (project / "new.txt").touch()
    refused(project, "0.1.0", "?? new.txt")


def test_another_branch_is_refused(project: Path) -> None:
    git("switch", "--quiet", "--create", "mine", cwd=project)
    refused(project, "0.1.0", "this is mine: git switch main")


def test_a_tag_that_exists_is_refused_and_so_is_a_second_run(project: Path) -> None:
    release.release(project, "0.1.0", dry_run=False)
    note(project)
    refused(project, "0.1.0", "the tag v0.1.0 exists already")
    git("tag", "--delete", "v0.1.0", cwd=project)
    refused(project, "0.1.0", "has a section [0.1.0] already")


def test_notes_join_the_headings_of_the_section_in_the_order_of_keep_a_changelog() -> None:
    hand = "First.\n\n### Fixed\n\n- One.\n\n### Added\n\n- Two.\n\n### Upgrades\n\nNone."
    notes = "### Added\n\n- Three.\n\n### Removed\n\n- Four."
    assert release.merged(hand, notes).split("\n\n") == [
        *("First.", "### Added", "- Two.", "- Three.", "### Removed", "- Four."),
        *("### Fixed", "- One.", "### Upgrades", "None."),
    ]


def test_a_version_that_leaves_a_section_of_another_unreleased_is_refused(project: Path) -> None:
    refused(project, "0.2.0", "CHANGELOG.md has [0.1.0] unreleased: release that first")


def test_a_release_without_a_note_is_refused(project: Path) -> None:
    release.release(project, "0.1.0", dry_run=False)
    refused(project, "0.2.0", "changes/ has no note")


def test_a_note_that_quotes_the_text_for_no_notes_is_kept(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note(project, "8.fixed.md", f"`make release` never writes `{release.NO_NOTES}`")
    release.release(project, "0.1.0", dry_run=True)
    assert NOTE in capsys.readouterr().out


def test_a_folder_among_the_notes_is_refused_by_its_name(project: Path) -> None:
    (project / "changes" / "archive").mkdir()
    note(project, "archive/7.fixed.md")
    refused(project, "0.1.0", "changes/archive: not a Markdown file")


def test_a_build_that_fails_leaves_the_tree_untouched(project: Path) -> None:
    manifest = project / "pyproject.toml"
    manifest.write_text(
        manifest.read_text().replace('requires-python = ">=3.11"', 'requires-python = "soon"')
    )
    commit(project)
    refused(project, "0.1.0", "requires-python")


def interrupted(*_: object, **__: object) -> str:
    raise KeyboardInterrupt


def test_an_interrupt_before_the_tag_leaves_nothing_and_the_next_run_succeeds(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(project)
    with monkeypatch.context() as patched:
        patched.setattr(release, "build", interrupted)
        with pytest.raises(KeyboardInterrupt):
            release.release(project, "0.1.0", dry_run=False)
    assert state(project) == before
    release.release(project, "0.1.0", dry_run=False)
    assert git("tag", cwd=project) == "v0.1.0"


KILLS = """import os, signal
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class CustomBuildHook(BuildHookInterface):
    pass

os.kill(os.getppid(), signal.{name})
if signal.getsignal(signal.{name}) is not signal.SIG_IGN:
    signal.pause()
"""


def signaled(project: Path, name: str, action: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a release whose build sends it a signal; check that the project stays the same.

    :param action: the signal's disposition for the release, as an option of ``env``.
    """
    (project / "hatch_build.py").write_text(KILLS.format(name=name))
    with (project / "pyproject.toml").open("a") as manifest:
        manifest.write("\n[tool.hatch.build.hooks.custom]\n")
    commit(project)
    unchanged = state(project)
    done = subprocess.run(
        [
            "env",
            f"--{action}-signal={name.removeprefix('SIG')}",
            sys.executable,
            "scripts/release.py",
            "0.1.0",
            *options,
        ],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert state(project) == unchanged
    return done


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_in_the_middle_of_the_build_leaves_nothing(project: Path, name: str, code: int) -> None:
    done = signaled(project, name, "default")
    assert (done.returncode, done.stderr) == (code, "release: interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored(project: Path) -> None:
    done = signaled(project, "SIGHUP", "ignore", "--dry-run")
    assert (done.returncode, done.stdout.endswith("nothing was kept\n")) == (0, True), done.stderr


def test_an_identity_of_the_repository_alone_is_enough(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    git("config", "user.name", "One", cwd=project)
    git("config", "user.email", "one@example.org", cwd=project)
    release.release(project, "0.1.0", dry_run=False)
    assert git("log", "-1", "--format=%an %ae", cwd=project) == "One one@example.org"


def test_after_an_interrupt_between_the_tag_and_the_branch_the_next_run_says_how_to_finish(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = release.git

    def until_the_merge(*arguments: str, cwd: Path) -> str:
        return interrupted() if arguments[0] == "merge" else real(*arguments, cwd=cwd)

    with monkeypatch.context() as patched:
        patched.setattr(release, "git", until_the_merge)
        with pytest.raises(KeyboardInterrupt):
            release.release(project, "0.1.0", dry_run=False)
    refused(project, "0.1.0", "git merge --ff-only v0.1.0")
    git("merge", "--ff-only", "v0.1.0", cwd=project)
    assert git("log", "-1", "--format=%s", cwd=project) == "Release 0.1.0"


def test_a_commit_during_the_build_refuses_the_release_and_the_next_run_has_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = release.build

    def beside_a_commit(tree: Path) -> list[Path]:
        note(project, "9.added.md", "A late option.")
        return real(tree)

    with monkeypatch.context() as patched:
        patched.setattr(release, "build", beside_a_commit)
        with pytest.raises(ReleaseError, match="run it again"):
            release.release(project, "0.1.0", dry_run=False)
    assert git("tag", cwd=project) == ""
    assert not (project / "dist").exists()
    release.release(project, "0.1.0", dry_run=False)
    assert "- A late option. (#9)" in (project / "CHANGELOG.md").read_text()


def test_a_merge_that_fails_leaves_no_tag(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = release.git

    def after_a_commit(*arguments: str, cwd: Path) -> str:
        if arguments[0] == "merge":
            note(project, "9.added.md", "A late option.")
        return real(*arguments, cwd=cwd)

    monkeypatch.setattr(release, "git", after_a_commit)
    with pytest.raises(ReleaseError, match="--ff-only"):
        release.release(project, "0.1.0", dry_run=False)
    assert (git("tag", cwd=project), git("status", "--porcelain", cwd=project)) == ("", "")
    assert git("log", "-1", "--format=%s", cwd=project) == "A change"


def test_the_dry_run_of_this_project_succeeds_in_a_clone_of_it(tmp_path: Path) -> None:
    names = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    clone = tmp_path / "clone"
    for name in names:
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    begin(clone)
    note(clone)
    waiting = re.search(r"^## \[(.+)\] - unreleased", (clone / "CHANGELOG.md").read_text(), re.MULTILINE)
    wanted = waiting[1] if waiting else f"{int(present_version().partition('.')[0]) + 1}.0.0"
    before = state(clone)
    done = subprocess.run(
        [sys.executable, "scripts/release.py", wanted, "--dry-run"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"haclient-{wanted}.tar.gz" in done.stdout
    assert state(clone) == before
