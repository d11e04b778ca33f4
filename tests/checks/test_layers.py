"""``make check`` refuses upward imports, import cycles at run time, and imports between separate packages.

Each case plants one in a copy of the packages, and runs the command of ``make check`` there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    others = shutil.ignore_patterns("__pycache__", "*.html*", "node_modules")
    for package in ("haclient", "broker_stub", "benchmarks"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=others)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(copy: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def plant(copy: Path, module: str, code: str) -> None:
    path = copy / (module.replace(".", "/") + ".py")
    path.write_text(path.read_text() + code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "code", "broken"),
    [
        pytest.param(
            "haclient.retry.policy",
            "\nfrom haclient.core import ledger  # noqa\n",
            "haclient.retry is not allowed to import haclient.core",
            id="plain",
        ),
        pytest.param(
            "haclient.discovery.topology",
            "\nimport typing\nif typing.TYPE_CHECKING:\n    from haclient import aio  # noqa\n",
            "haclient.discovery is not allowed to import haclient.aio",
            id="for-typing-only",
        ),
        pytest.param(
            "broker_stub.queueing.queue",
            "\ndef planted() -> None:\n    from broker_stub.member import member  # noqa\n",
            "broker_stub.queueing is not allowed to import broker_stub.member",
            id="inside-a-function",
        ),
        pytest.param(
            "haclient.core.ledger",
            "\nfrom broker_stub.amqp import message_format  # noqa\n",
            "haclient.core is not allowed to import broker_stub",
            id="client-core-to-broker",
        ),
        pytest.param(
            "haclient.cli.replay",
            "\nfrom benchmarks.storm import run  # noqa\n",
            "haclient is not allowed to import benchmarks",
            id="what-is-installed-to-benchmarks",
        ),
        pytest.param(
            "broker_stub.queueing.queue",
            "\nfrom haclient.discovery import search  # noqa\n",
            "broker_stub is not allowed to import haclient.discovery",
            id="broker-to-what-is-not-listed",
        ),
        pytest.param(
            "broker_stub.store.memory",
            "\nfrom broker_stub.queueing import queue  # noqa\n",
            "broker_stub.store is not allowed to import broker_stub.queueing",
            id="store-to-queues",
        ),
    ],
)
def test_a_planted_import_breaks_a_contract(copy: Path, module: str, code: str, broken: str) -> None:
    plant(copy, module, code)
    checked = run(copy, LINT_IMPORTS, "--no-cache", "--no-logo")
    assert checked.returncode != 0
    assert broken in checked.stdout


@pytest.mark.slow
def test_a_circle_at_run_time_is_found_and_one_for_typing_is_not(copy: Path) -> None:
    check = ROOT / "scripts" / "check_tree.py"
    assert run(copy, sys.executable, check, copy).stdout == ""
    plant(
        copy,
        "haclient.retry.policy",
        "\nimport typing\nif typing.TYPE_CHECKING:\n    from haclient.retry import strategies  # noqa\n",
    )
    assert run(copy, sys.executable, check, copy).returncode == 0
    plant(copy, "haclient.outcome", "\ndef planted() -> None:\n    from haclient import planted  # noqa\n")
    (copy / "haclient" / "planted.py").write_text("from haclient import outcome\n")
    checked = run(copy, sys.executable, check, copy)
    assert checked.returncode == 1
    assert "haclient.outcome" in checked.stdout
    assert "haclient.planted" in checked.stdout


def test_a_folder_and_a_module_that_grew_too_large_are_found(copy: Path) -> None:
    for number in range(16):
        (copy / "haclient" / "retry" / f"planted{number}.py").write_text("")
    plant(copy, "haclient.outcome", "\n" * 500)
    (copy / "haclient" / "core" / "README.md").unlink()
    plant(copy, "benchmarks.storm.lines", "\n" * 500)
    checked = run(copy, sys.executable, ROOT / "scripts" / "check_tree.py", copy)
    assert checked.returncode == 1
    assert "haclient/retry: " in checked.stdout
    assert "haclient/outcome.py: " in checked.stdout
    assert "haclient/core: no README.md" in checked.stdout
    assert "benchmarks/storm/lines.py: " in checked.stdout
