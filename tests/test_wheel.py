"""The wheel, and the package for a cluster, have all files of the tree, including templates and styles.

The wheel also works alone, in a virtual environment with only its requirements and pytest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from haclient.analysis.io.package import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0


def tree(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in paths if path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> set[str]:
    """Return the names in the wheel."""
    return set(zipfile.ZipFile(wheel_file).namelist())


def test_the_wheel_has_every_file_of_the_packages(wheel: set[str]) -> None:
    assert not tree("haclient", "broker_stub") - wheel
    assert "haclient/analysis/report/template.html.j2" in wheel


def test_the_wheel_has_nothing_else(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"haclient", "broker_stub"}


def test_the_package_for_spark_has_every_file_of_the_analysis(tmp_path: Path) -> None:
    build(tmp_path / "haclient.zip")
    names = set(zipfile.ZipFile(tmp_path / "haclient.zip").namelist())
    assert not tree("haclient/analysis") - names
    assert "haclient/analysis/report/template.html.j2" in names


# -- alone -------------------------------------------------------------------------------------------------


def needed(names: list[str]) -> set[str]:
    """Return these distributions and their requirements without any extra."""
    found: set[str] = set()
    while names:
        name = names.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            requirements = map(Requirement, metadata.requires(name) or ())
            names += [
                each.name for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    return found


def lend(distribution: str, site_packages: Path) -> None:
    """Link an installed distribution into another environment: proton takes a minute to compile."""
    files = metadata.files(distribution) or ()
    for top in {Path(file).parts[0] for file in files} - {"..", "__pycache__"}:
        source = Path(str(metadata.distribution(distribution).locate_file(top)))
        target = site_packages / top
        if not target.exists():
            target.symlink_to(source)


class Alone:
    """A virtual environment with the wheel, its requirements, and pytest."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE
        )
        self.bin = folder / "bin"
        self.site_packages = next(folder.glob("lib/python*/site-packages"))
        for distribution in needed(["haclient", "pytest"]) - {"haclient"}:
            lend(distribution, self.site_packages)
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        quiet = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, *quiet, str(wheel)], check=True, timeout=PATIENCE)

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        """Run a program of the environment; return its output."""
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=cwd,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Return the environment variables, without any that lead back to the checkout."""
        return {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))
        }


@pytest.fixture(scope="module")
def alone(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("alone") / "venv", wheel_file)


IMPORTS = """
import importlib.util, sys
import haclient, haclient.aio, haclient.blocking, haclient.reactor, haclient.utils, haclient.testing
import broker_stub
assert haclient.connect and haclient.Message
assert haclient.__file__.startswith(sys.prefix), haclient.__file__
assert importlib.util.find_spec("pyspark") is None
assert importlib.util.find_spec("matplotlib") is None
"""


def test_it_imports_without_any_extra(alone: Alone, tmp_path: Path) -> None:
    alone.run("python", "-W", "error", "-c", IMPORTS, cwd=tmp_path)


def test_its_commands_explain_themselves(alone: Alone, tmp_path: Path) -> None:
    assert "Usage: haclient" in alone.run("haclient", "--help", cwd=tmp_path)
    assert "Usage: broker-stub" in alone.run("broker-stub", "--help", cwd=tmp_path)


def test_a_pair_starts_and_stops(alone: Alone, tmp_path: Path) -> None:
    command = [str(alone.bin / "python"), "-m", "broker_stub", "pair", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=alone.variables(), stdout=subprocess.PIPE, text=True
    ) as pair:
        assert pair.stdout is not None
        try:
            events = (json.loads(line) for line in pair.stdout)
            ready = next(event for event in events if event["event"] == "ready")
            assert len(ready["members"]) == 2
            pair.send_signal(signal.SIGTERM)
            assert pair.wait(PATIENCE) == 0
        finally:
            pair.kill()


FIXTURES = """
import asyncio
import haclient
from haclient.testing import url

def test_a_pair(haclient_pair, haclient_fast_failover):
    with haclient.connect(haclient_pair.url) as connection, connection.create_sender("q") as sender:
        haclient_pair.kill_primary()
        sender.send(haclient.Message(body=1), timeout=60)

def test_a_broker_behind_a_flaky_peer(haclient_broker, haclient_flaky_peer):
    with haclient.connect(url(haclient_flaky_peer("garbage"), haclient_broker)) as connection:
        assert str(connection.endpoint) == haclient_broker.url

def test_virtual_time(haclient_virtual_time):
    haclient_virtual_time.run(asyncio.sleep(3600))
    assert haclient_virtual_time.elapsed == 3600
"""


def test_the_fixtures_of_its_pytest_plugin_work(alone: Alone, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FIXTURES)
    assert "3 passed" in alone.run("python", "-m", "pytest", "-W", "error", cwd=tmp_path)
