"""``scripts/setup.sh`` in a separate checkout, with stub commands that only record their calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "cat",
    "cksum",
    "cp",
    "cut",
    "dirname",
    "env",
    "flock",
    "grep",
    "mkdir",
    "rm",
    "sh",
    "tail",
    "timeout",
)

# ``python -m venv FOLDER`` copies the command; ``-m pip`` records its arguments and runs the test's action.
PYTHON = """\
case "$1 ${2:-}" in
    "-m venv") echo "$NAME: venv" >>"$CALLS"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    "-m pip") echo "pip $*" >>"$CALLS"; env >"$CALLS.env"; eval "${WHILE_PIP:-}" ;;
    "--version ") echo Python 3.13.0 ;;
esac
"""


class Checkout:
    """A copy of the scripts, and its own ``PATH``."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self._commands = folder / "commands"
        self._calls = folder / "calls"
        for name in ("scripts/setup.sh", "scripts/apt.sh", "pyproject.toml", "constraints.txt", "Makefile"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self._commands.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path is not None, tool
            (self._commands / tool).symlink_to(path)
        for name in ("gcc", "pkg-config", "saslpasswd2", "dnsmasq", "ip", "java", "ocf-tester", "xmllint"):
            self.command(name, "exit 0")
        self.command("python3.13", PYTHON)
        self.command("id", "echo 0")
        for name in ("apt-get", "dpkg"):
            self.command(name, f'echo "{name} $* ($DEBIAN_FRONTEND)" >>"$CALLS"')

    def command(self, name: str, script: str) -> None:
        """Add a command to its ``PATH``."""
        path = self._commands / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\nNAME={name}\n{script}\n")
        path.chmod(0o755)

    def without(self, name: str) -> None:
        """Remove a command from its ``PATH``."""
        (self._commands / name).unlink()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the script, without a terminal."""
        return subprocess.Popen(
            [self.root / "scripts" / "setup.sh", *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": str(self._commands), "CALLS": str(self._calls), **environment},
        )

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """Return the script's error output."""
        with self.start(*arguments, **environment) as process:
            said = process.communicate(timeout=30)[1]
        assert process.returncode == code, said
        return said

    def calls(self) -> list[str]:
        """Return the calls since the last time, except for system packages that this machine lacks."""
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return calls

    def installed(self) -> list[str]:
        """Return the last argument of each call of pip since the last time."""
        return [call.rpartition(" ")[2] for call in self.calls() if call.startswith("pip ")]

    def environment_of_pip(self) -> Mapping[str, str]:
        """Return pip's environment."""
        lines = Path(f"{self._calls}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_each_part_installs_what_it_needs_once(checkout: Checkout) -> None:
    checkout.run("demo")
    assert checkout.installed() == ["."]
    checkout.run("docs")
    assert checkout.installed() == [".[docs]"]
    checkout.run("demo")
    assert checkout.calls() == []
    checkout.run()
    assert checkout.installed() == [".[dev,docs,fast,kerberos,metrics,oauth,plots,spark]"]
    checkout.run("docs")
    checkout.run("demo")
    assert checkout.calls() == []


def test_an_install_that_was_interrupted_begins_anew(checkout: Checkout) -> None:
    checkout.run("demo")
    checkout.calls()
    checkout.run("docs", code=-9, WHILE_PIP="kill -9 $PPID")
    assert "python3.13: venv" not in checkout.calls(), "until then all was well"
    checkout.run("docs")
    assert "python3.13: venv" in checkout.calls()


def test_a_pip_that_fails_leaves_no_stamp(checkout: Checkout) -> None:
    said = checkout.run("demo", code=1, WHILE_PIP="exit 1")
    assert "pip could not install" in said
    checkout.calls()
    checkout.run("demo")
    assert checkout.installed() == ["."]


def test_of_two_at_once_the_second_waits_and_has_nothing_to_do(checkout: Checkout, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with checkout.start("demo", WHILE_PIP=f"read -r _ <'{gate}'") as first, gate.open("w") as opened:
        with checkout.start("demo") as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "setup: another setup is running here, waiting for it\n"
            opened.write("go on\n")
            opened.flush()
            assert second.wait(30) == 0
        assert first.wait(30) == 0
    assert checkout.installed() == ["."]


@pytest.mark.parametrize("broken", ["exit 1", "exec no-such-interpreter", "kill -11 $$"])
def test_a_broken_python_is_passed_over(checkout: Checkout, broken: str) -> None:
    checkout.command("python3.12", PYTHON)
    checkout.command("python3.13", broken)
    checkout.run("demo")
    assert "python3.12: venv" in checkout.calls()


def test_a_python_that_hangs_is_passed_over(checkout: Checkout) -> None:
    timeout = shutil.which("timeout")
    checkout.command("timeout", f'shift 3; exec {timeout} -s KILL 1 "$@"')  # not the script's ten seconds
    checkout.command("python3.12", PYTHON)
    checkout.command("python3.13", f"exec {shutil.which('sleep')} 1000")
    checkout.run("demo")
    assert "python3.12: venv" in checkout.calls()


def test_without_rights_and_without_a_terminal_it_prints_the_line_to_run(checkout: Checkout) -> None:
    checkout.without("gcc")
    checkout.command("id", "echo 1000")
    checkout.command("sudo", 'echo "sudo $*" >>"$CALLS"; exit 1')  # asks for a password
    lines = checkout.run("demo", code=1).splitlines()
    assert lines[-2] == "setup: run this line, then make again:"
    assert lines[-1].startswith("sudo apt-get install -y --no-install-recommends ")
    assert "gcc" in lines[-1].split()
    assert checkout.calls() == ["sudo -n true"]


def test_sudo_without_a_password_installs_and_is_not_asked_when_nothing_is_missing(
    checkout: Checkout,
) -> None:
    checkout.without("gcc")
    checkout.command("id", "echo 1000")
    checkout.command("sudo", 'echo "sudo $1 $2" >>"$CALLS"; if [ "$1" = -n ]; then shift; fi; "$@"')
    checkout.command("true", "exit 0")
    checkout.run("demo")
    calls = checkout.calls()
    assert calls[0] == "sudo -n true"
    install = next(call for call in calls if " install " in call)
    assert install.startswith("apt-get ")
    assert " -y " in install
    assert " gcc" in install
    assert install.endswith("(noninteractive)")
    checkout.run("demo")
    assert checkout.calls() == []


def test_an_apt_that_fails_says_what_to_do(checkout: Checkout) -> None:
    checkout.without("gcc")
    checkout.command("apt-get", 'case "$*" in *install*) echo "E: No space left"; exit 100 ;; esac')
    said = checkout.run("demo", code=1)
    assert "E: No space left" in said
    assert "apt-get could not install" in said
    assert "run make again" in said


def test_pip_keeps_its_index_and_certificates_but_no_other_target(checkout: Checkout) -> None:
    kept = {
        "PIP_INDEX_URL": "https://index.example/simple",
        "PIP_CERT": "/ca.pem",
        "PIP_CONFIG_FILE": "/pip.conf",
    }
    kept |= {"REQUESTS_CA_BUNDLE": "/ca.pem", "https_proxy": "http://proxy.example"}
    dropped = {
        "PYTHONHOME": "/nowhere",
        "PYTHONPATH": "/nowhere",
        "PIP_TARGET": "/nowhere",
        "PIP_PREFIX": "/x",
    }
    checkout.run("demo", PIP_USER="1", VIRTUAL_ENV="/nowhere", **kept, **dropped)
    found = checkout.environment_of_pip()
    assert found.items() >= kept.items()
    assert not found.keys() & dropped.keys()
    assert found["PIP_USER"] == "0"


def test_a_home_that_cannot_be_written_is_no_cache(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("demo", HOME="/no-home")
    assert checkout.environment_of_pip()["PIP_NO_CACHE_DIR"] == "1"
    checkout.run("docs", HOME=str(tmp_path))
    assert "PIP_NO_CACHE_DIR" not in checkout.environment_of_pip()


def test_a_venv_of_the_user_survives_setup_and_clean(checkout: Checkout) -> None:
    for name in (".venv", "haclient", "broker_stub", "tests", "examples", "benchmarks"):
        (checkout.root / name).mkdir()
    mine = checkout.root / ".venv" / "mine"
    mine.touch()
    checkout.run("demo")
    subprocess.run(["make", "clean"], cwd=checkout.root, check=True, capture_output=True)
    assert mine.exists()
    assert not (checkout.root / ".make-venv").exists()


def test_a_link_in_place_of_the_environment_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (checkout.root / ".make-venv").symlink_to(tmp_path / "elsewhere")
    assert ".make-venv is a link; remove it" in checkout.run("demo", code=1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    found = subprocess.run(
        ["shellcheck", "-x", *sorted(ROOT.glob("scripts/*.sh"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
