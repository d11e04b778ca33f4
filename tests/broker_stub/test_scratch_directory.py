"""A directory with passwords whose process is gone is removed at the next start, and no other one is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from broker_stub import scratch_directory
from broker_stub.scratch_directory import OWNER, PREFIX, Owner

# Writes its identity without the product's code: from its own /proc.
_MAKE = """
import sys, time
from broker_stub import scratch_directory
print(scratch_directory.make(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of temporary directories."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start another process; return it and its directory."""
    with subprocess.Popen([sys.executable, "-c", _MAKE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def left_behind(folder: Path, owner: Owner | str, name: str = "left") -> Path:
    directory = folder / f"{PREFIX}{name}"
    directory.mkdir(mode=0o700)
    (directory / OWNER).write_text(owner if isinstance(owner, str) else json.dumps(asdict(owner)))
    (directory / "sasldb2").write_text("planted")
    return directory


def test_the_directory_of_a_process_stays_while_it_lives_and_is_removed_after_it_was_killed(
    other: tuple[subprocess.Popen[str], Path],
) -> None:
    process, directory = other
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    own = scratch_directory.make()
    assert directory.is_dir()
    process.send_signal(signal.SIGSTOP)
    scratch_directory.sweep()
    assert directory.is_dir()
    process.kill()
    # Dead and not reaped: its id is not free yet.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    scratch_directory.sweep()
    assert not directory.exists()
    process.wait()
    assert own.is_dir()


def test_another_process_that_got_the_id_is_not_the_owner(
    folder: Path, other: tuple[subprocess.Popen[str], Path]
) -> None:
    process, directory = other
    owner = Owner(**json.loads((directory / OWNER).read_text()))
    # From /proc/PID/stat; the name in it has no space here.
    assert owner.started == int(Path(f"/proc/{process.pid}/stat").read_text().split()[21])
    reused = left_behind(folder, replace(owner, started=owner.started - 1))
    scratch_directory.sweep()
    assert (reused.exists(), directory.exists()) == (False, True)


def test_what_was_left_before_the_last_boot_is_removed(folder: Path) -> None:
    directory = left_behind(folder, replace(Owner.this_process(), boot="another"))
    scratch_directory.sweep()
    assert not directory.exists()


@pytest.mark.parametrize(
    "change",
    [{"host": "elsewhere", "boot": "another"}, {"namespace": "pid:[1]", "started": 1}],
    ids=["another host's", "another container's"],
)
def test_who_cannot_be_looked_at_from_here_keeps_his(folder: Path, change: dict[str, object]) -> None:
    directory = left_behind(folder, replace(Owner.this_process(), **change))  # type: ignore[arg-type]
    scratch_directory.sweep()
    assert directory.is_dir()


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", "\xff", '{"pid": 1}', "x" * 10_000, '{"host": 1, "boot": 2, "namespace": 3}'],
)
def test_who_owns_it_must_be_known(folder: Path, text: str) -> None:
    directory = left_behind(folder, text)
    (folder / f"{PREFIX}empty").mkdir()
    scratch_directory.sweep()
    assert directory.is_dir()
    assert (folder / f"{PREFIX}empty").is_dir()


def gone() -> Owner:
    return replace(Owner.this_process(), started=1)


def test_what_others_may_write_to_or_what_is_no_directory_stays(folder: Path) -> None:
    directory = left_behind(folder, gone())
    directory.chmod(0o770)
    elsewhere = folder / "elsewhere"
    shutil.copytree(left_behind(folder, gone(), "second"), elsewhere)
    elsewhere.chmod(0o700)
    (folder / f"{PREFIX}link").symlink_to(elsewhere)
    (folder / f"{PREFIX}file").write_text("")
    linked = left_behind(folder, gone(), "linked owner")
    (linked / OWNER).rename(folder / "true owner")
    (linked / OWNER).symlink_to(folder / "true owner")
    scratch_directory.sweep()
    assert directory.is_dir()
    assert (elsewhere / "sasldb2").exists()
    assert (folder / f"{PREFIX}file").exists()
    assert linked.is_dir()
    assert not (folder / f"{PREFIX}second").exists()


def test_another_users_directory_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = left_behind(folder, gone())
    if os.geteuid() == 0:
        os.chown(directory, 65534, 65534)
    else:  # only root may give files away
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    scratch_directory.sweep()
    assert directory.is_dir()
