"""The runner of proton's own tests, on a small tree of the same shape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dropin.proton_suite import folder_of
from tests.examples.program import PATIENCE, ROOT

# Cases that the runner must handle: a package that cannot be imported, relative imports, hanging and skipped
# tests.
TREE = {
    "__init__": "raise RuntimeError('the package of proton imports every suite')",
    "common": "import unittest\nTest = unittest.TestCase",
    "utils": """
from proton.utils import BlockingConnection
from .common import Test

class Blocking(Test):
    def test_whose(self):
        assert BlockingConnection.__module__ == {package!r} + ".utils"
""",
    "connect": """
import time
from .common import Test

class Slow(Test):
    def test_hangs(self):
        time.sleep(600)

    def test_is_skipped(self):
        self.skipTest("not here")

    def test_is_wrong(self):
        with open("left-behind", "x"):
            raise AssertionError("for this reason")
""",
    "reactor": """
from proton import Message
from proton.reactor import Backoff, Container
from .common import Test

class Reactor(Test):
    def test_whose(self):
        assert Container.__module__.startswith({package!r} + ".")
        assert Message.__module__.startswith("proton")
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path, "haclient")


def write(folder: Path, package: str) -> Path:
    suites = folder / "python" / "tests" / "proton_tests"
    suites.mkdir(parents=True)
    for name, text in TREE.items():
        (suites / f"{name}.py").write_text(text.format(package=package))
    return folder


def run(tree: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the suite; return its exit code and its output."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.dropin.proton_suite", str(tree), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert not ended.stderr
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.slow
def test_the_tests_of_a_tree_run_on_the_drop_in(tree: Path) -> None:
    code, printed = run(tree, "--only", "whose")
    assert printed[:2] == ["passes  utils.Blocking.test_whose", "passes  reactor.Reactor.test_whose"]
    assert printed[2].startswith("2 of 2 pass on the drop-in, proton ")
    assert code == 0


def test_the_judge_runs_them_on_proton(tmp_path: Path) -> None:
    """The classes of proton live in modules of ``proton`` with other names."""
    tree = write(tmp_path, "proton")
    (tree / "python/tests/proton_tests/utils.py").write_text(
        TREE["utils"].format(package="proton").replace("'proton' + \".utils\"", "'proton._utils'")
    )
    code, printed = run(tree / "python", "--judge", "--only", "whose")
    assert printed[-1].startswith("2 of 2 pass on proton itself")
    assert code == 0


@pytest.mark.slow
def test_a_test_that_fails_or_is_skipped_does_not_pass(tree: Path) -> None:
    code, printed = run(tree, "--only", "s_")
    assert printed[:2] == ["skipped connect.Slow.test_is_skipped", "FAILS   connect.Slow.test_is_wrong"]
    assert any("for this reason" in line for line in printed)
    assert printed[-1].startswith("0 of 2 pass")
    assert code == 1


def test_a_test_that_hangs_ends(tree: Path) -> None:
    code, printed = run(tree, "--only", "hangs", "--timeout", "1")
    assert printed[0] == "hangs   connect.Slow.test_hangs"
    assert code == 1


def test_nothing_is_left_in_the_tree(tree: Path) -> None:
    before = set(tree.rglob("*"))
    run(tree, "--only", "wrong")
    assert set(tree.rglob("*")) == before


def test_a_folder_without_the_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="give a checkout"):
        folder_of(tmp_path)
