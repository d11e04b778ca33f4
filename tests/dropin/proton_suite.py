"""Run the tests of python-qpid-proton through the drop-in, from a source tree of qpid-proton.

``python -m tests.dropin.proton_suite TREE [--judge] [--only WORD] [--timeout SECONDS]``

TREE is a checkout of apache/qpid-proton at the tag of the installed proton, or its folder ``python``.
No test is copied: the program loads the tests from there.  While they load, their imports from
``proton.reactor`` and ``proton.utils`` become imports from ``haclient.reactor`` and ``haclient.utils``.
With ``--judge`` the imports stay: proton itself must pass every test, or the comparison is not fair.

Each test runs in its own process and folder.  So a test that hangs, or leaves a thread or a file behind,
does not affect any other test.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import proton

SUITES = ("utils", "connect", "reactor")
_PACKAGE = "proton_tests"
_FOLDER = Path("python/tests") / _PACKAGE
_DROP_IN = {"proton.reactor": "haclient.reactor", "proton.utils": "haclient.utils"}
# Each test is a separate process, on a machine that may be busy.
_WORKERS = 2
# Lines shown of a failed test's output.
_LINES = 12


class _Rename(ast.NodeTransformer):
    """The import that docs/drop-in.md asks a program to change."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.level == 0 and node.module in _DROP_IN:
            node.module = _DROP_IN[node.module]
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module of proton's tests with the changed imports."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the changed source; never use a cached file of another run."""
        path = self.get_filename(fullname)
        tree = _Rename().visit(ast.parse(self.get_data(path), path))
        code: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


class _Finder:
    """Finds the modules of proton's tests, without running their package's ``__init__``."""

    def __init__(self, folder: Path, *, judge: bool) -> None:
        self._folder = folder
        self._loader = importlib.machinery.SourceFileLoader if judge else _Loader

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Return the module of that name, if it is one of proton's tests
        (``importlib.abc.MetaPathFinder``).
        """
        package, _, module = name.partition(".")
        if package != _PACKAGE:
            return None
        if not module:
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(self._folder)]
            return spec
        path = str(self._folder / f"{module}.py")
        return importlib.util.spec_from_file_location(name, path, loader=self._loader(name, path))


def load(folder: Path, *, judge: bool) -> unittest.TestSuite:
    """Load all tests of the suites."""
    sys.meta_path.insert(0, _Finder(folder, judge=judge))
    return unittest.defaultTestLoader.loadTestsFromNames([f"{_PACKAGE}.{suite}" for suite in SUITES])


def _tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests_of(test)
        else:
            yield test


def folder_of(tree: Path) -> Path:
    """Return the folder of the tests in a source tree.

    :raises SystemExit: if there is none.
    """
    for base in (tree, tree.parent):
        if (base / _FOLDER / "reactor.py").exists():
            return base.resolve() / _FOLDER
    raise SystemExit(f"{tree} has no {_FOLDER}: give a checkout of apache/qpid-proton")


def run_one(folder: Path, name: str, *, judge: bool) -> int:
    """Run one test in this process; return 0 if it passed, 1 if it failed, 2 if it was skipped."""
    chosen = [test for test in _tests_of(load(folder, judge=judge)) if test.id() == name]
    result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(chosen))
    sys.stderr.flush()
    return 1 if not result.wasSuccessful() or not result.testsRun else 2 if result.skipped else 0


def _spawn(folder: Path, name: str, timeout: float, *, judge: bool) -> tuple[str, str]:
    here = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "tests.dropin.proton_suite", str(folder.parents[2]), "--one", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((here, os.environ.get("PYTHONPATH", "")))}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            ended = subprocess.run(
                [*command, *(["--judge"] if judge else [])],
                cwd=scratch,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = error.stderr or ""
            return "hangs", said if isinstance(said, str) else said.decode(errors="replace")
    return {0: "passes", 2: "skipped"}.get(ended.returncode, "FAILS"), ended.stderr


def main() -> int:
    """Run the tests that the arguments select; return 1 if a test did not pass."""
    parser = argparse.ArgumentParser(description="Run the tests of python-qpid-proton through the drop-in.")
    parser.add_argument("tree", type=Path, help="a checkout of apache/qpid-proton")
    parser.add_argument("--judge", action="store_true", help="run them on proton itself")
    parser.add_argument("--only", default="", help="only tests whose name contains this")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one test")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.dont_write_bytecode = True  # write no files into the tree
    folder = folder_of(given.tree)
    if given.one:
        return run_one(folder, given.one, judge=given.judge)
    if not (proton.SSL.present() and proton.SASL.extended()):
        raise SystemExit(
            "this proton was built without TLS or without Cyrus SASL: most tests would be skipped"
        )
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # loading proton's tests writes a SASL configuration
        names = [test.id() for test in _tests_of(load(folder, judge=True)) if given.only in test.id()]
    os.chdir(folder)
    with ThreadPoolExecutor(_WORKERS) as pool:
        results = tuple(pool.map(lambda name: _spawn(folder, name, given.timeout, judge=given.judge), names))
    for name, (verdict, output) in zip(names, results, strict=True):
        sys.stdout.write(f"{verdict:8}{name.removeprefix(_PACKAGE + '.')}\n")
        if verdict not in ("passes", "skipped"):
            sys.stdout.writelines(f"        {line}\n" for line in output.splitlines()[-_LINES:])
    passed = sum(verdict == "passes" for verdict, _ in results)
    on, version = "proton itself" if given.judge else "the drop-in", ".".join(map(str, proton.VERSION))
    sys.stdout.write(f"{passed} of {len(results)} pass on {on}, proton {version}\n")
    return int(passed != len(results))


if __name__ == "__main__":
    sys.exit(main())
