"""What is installed, and what is sent to a cluster, has all that is in the tree: templates and styles too."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from haclient.analysis.package import build

ROOT = Path(__file__).parents[1]


def tree(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in paths if path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    return set(zipfile.ZipFile(next(folder.glob("*.whl"))).namelist())


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
