"""Temporary directories with secrets in them, and what became of those whose owner is gone.

Theory of operation
-------------------
A process that is killed leaves its temporary directory behind, with passwords in it.  So each one has a file
``owner`` that says which process made it, and the next start removes those whose owner is gone.

Rules
-----
* A process is known by its id *and* the time at which it started: ids are given again.
* Only what this user owns, is private, and says whose it is, is ever removed.  One of another host or of
  another boot's or container's process ids says nothing that could be checked here, unless that boot is over:
  it stays.
* One that cannot be removed is left for the next start.

Source: proc(5), ``/proc/PID/stat``, field 22; ``/proc/sys/kernel/random/boot_id``; pid_namespaces(7).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from haclient.printable.log import get_logger

logger = get_logger("broker_stub.scratch_directory")

PREFIX = "broker-stub-"
OWNER = "owner"
# An owner's file is far below that; what is longer is none.
_LONGEST = 4096
# Of /proc/PID/stat, behind the name of the program, which may hold anything: field 22 is the 20th there.
_START_TIME = 19


@dataclass(frozen=True, slots=True)
class Owner:
    """A process.

    :param started: clock ticks from the boot to its start.
    :param boot: which boot of the host, and ``namespace`` whose process ids.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The one that asks."""
        pid = os.getpid()
        return cls(os.uname().nodename, _boot(), _namespace(), pid, _start_time(pid) or 0)

    @property
    def is_gone(self) -> bool:
        """Whether it has certainly ended."""
        if self.host != os.uname().nodename:
            return False
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and _start_time(self.pid) != self.started


def make(prefix: str = PREFIX) -> Path:
    """A new private directory that says whose it is; those whose owner is gone are removed."""
    sweep()
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    with contextlib.suppress(OSError):  # without /proc nobody knows who is gone, and nothing is swept
        (directory / OWNER).write_text(json.dumps(asdict(Owner.this_process())))
    return directory


@contextlib.contextmanager
def temporary(prefix: str = PREFIX) -> Iterator[Path]:
    """Make one, and remove it after the body; a forked process that ends in the body leaves it alone."""
    directory, pid = make(prefix), os.getpid()
    try:
        yield directory
    finally:
        if os.getpid() == pid:
            shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """Remove the directories whose owner is gone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = _owner(directory)
        with contextlib.suppress(OSError):
            if owner is not None and owner.is_gone:
                shutil.rmtree(directory, ignore_errors=True)
                logger.info("removed %s, which process %d left behind", directory, owner.pid)


def _owner(directory: Path) -> Owner | None:
    """Who made it, ``None`` where that is not known for certain."""
    try:
        found = directory.lstat()
        mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not mine or stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            return None
        descriptor = os.open(directory / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            facts = json.loads(os.read(descriptor, _LONGEST))
        finally:
            os.close(descriptor)
        owner = Owner(**facts)
    except (OSError, ValueError, TypeError):
        return None
    texts = (owner.host, owner.boot, owner.namespace)
    valid = all(isinstance(text, str) and text for text in texts) and type(owner.pid) is int
    return owner if valid and type(owner.started) is int and owner.pid > 0 else None


def _start_time(pid: int) -> int | None:
    """When a process started, ``None`` when none of that id runs.

    :raises OSError: when that cannot be read.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    # A dead one that nobody has waited for has its id still.
    return None if fields[0] in {"Z", "X"} else int(fields[_START_TIME])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
