"""A host of the analysis needs no proton: names of the package are imported when they are used."""

from __future__ import annotations

import ast
import os
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


CLIENT = ("aio", "blocking", "errors", "utils", "reactor", "testing", "tracing")
COMMANDS = ("members", "send", "receive", "move", "watch", "explain")


@pytest.mark.parametrize("broken", [True, False])
def test_the_client_names_what_is_missing_and_its_packages(tmp_path: Path, broken: bool) -> None:
    """A build for another machine lacks a shared library; a host without the build lacks the module."""
    reason = "libsasl2.so.2: cannot open shared object file: No such file or directory"
    variables = {**os.environ}
    if broken:
        (tmp_path / "proton").mkdir()
        (tmp_path / "proton" / "__init__.py").write_text(f"raise ImportError({reason!r})\n")
        variables["PYTHONPATH"] = os.pathsep.join((str(tmp_path), *sys.path))
    program = "" if broken else WITHOUT
    program += f"""
import importlib, sys
from click.testing import CliRunner
from haclient.cli import main
for name in {CLIENT!r} + ("",):
    try:
        importlib.import_module("haclient." + name) if name else importlib.import_module("haclient").connect
    except ImportError as error:
        print(type(error).__name__, error)
for name in {COMMANDS!r}:
    done = CliRunner().invoke(main, [name, "amqp://a", "b"])
    print(done.exit_code, " ".join(done.stderr.split()))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(CLIENT) + 1 + len(COMMANDS), done.stdout
    kind = "ImportError" if broken else "ModuleNotFoundError"
    why = reason if broken else "import of proton halted; None in sys.modules"
    text = f"haclient needs python-qpid-proton, which cannot be imported here: {why}.  If a shared "
    for line in lines[: len(CLIENT) + 1]:
        assert line.startswith(f"{kind} {text}")
        for package in ("gcc", "python3-dev", "glibc-devel", "python3-devel"):
            assert package in line
    for name, line in zip(COMMANDS, lines[len(CLIENT) + 1 :], strict=True):
        assert line.startswith(f"3 Error: {name} cannot run here: {' '.join(text.split())}")


@pytest.mark.parametrize("outside", [True, False])
def test_the_python_of_the_system_asks_for_the_environment(outside: bool) -> None:
    """In a checkout the package is importable there, and only proton is missing."""
    prefix = "sys.prefix, sys.base_prefix = '/usr', " + ("'/usr'" if outside else "'/opt'")
    done = run_without_proton(f"{prefix}; import haclient.aio")
    assert done.returncode == 1
    asked = "This is the Python of /usr: is your virtual environment active?"
    assert (asked in done.stderr) is outside


def test_a_command_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "haclient.cli.commands.simulate", None)
    assert "simulate" in CliRunner().invoke(main, ["--help"]).stdout
    done = CliRunner().invoke(main, ["simulate", "--clients", "5"])
    assert done.exit_code == 3
    assert done.stderr.startswith("Error: simulate cannot run here: ")


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
