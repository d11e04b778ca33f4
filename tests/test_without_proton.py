"""A host of the analysis needs no proton: names of the package are imported when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import haclient
from haclient.cli import main

WITHOUT = "import sys; sys.modules['proton'] = sys.modules['cproton'] = None; "


def run_without_proton(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_analysis_and_its_command_do_without() -> None:
    modules = "haclient.analysis.job, haclient.analysis.stream, haclient.analysis.generate"
    done = run_without_proton(
        f"import {modules}; from haclient.cli import main; main(['analyze', '--metrics'])"
    )
    assert done.returncode == 0, done.stderr
    assert "p99_downtime" in done.stdout


def test_what_is_pure_does_without() -> None:
    done = run_without_proton("import haclient; print(haclient.ClusterURL.parse('amqp://a'))")
    assert done.returncode == 0, done.stderr


def test_the_client_says_what_is_missing() -> None:
    done = run_without_proton("import haclient; haclient.connect")
    assert "ModuleNotFoundError: import of proton halted" in done.stderr


def test_a_command_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "haclient.cli.commands.storm", None)
    assert "storm" in CliRunner().invoke(main, ["--help"]).stdout
    done = CliRunner().invoke(main, ["storm", "--connections", "5"])
    assert done.exit_code == 3
    assert done.stderr.startswith("Error: storm cannot run here: ")


def test_a_name_comes_from_where_type_checkers_look_for_it() -> None:
    tree = ast.parse(Path(haclient.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    homes = {name.name: node.module for node in imports for name in node.names}
    assert haclient._HOMES.items() <= homes.items()
    assert set(haclient.__all__) <= set(homes)
    assert all(getattr(haclient, name) is not None for name in haclient.__all__)
    assert set(haclient.__all__) <= set(dir(haclient))


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="module 'haclient' has no attribute 'conect'"):
        haclient.conect  # noqa: B018
