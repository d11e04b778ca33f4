"""Temporary directories with secrets, and the removal of abandoned ones.

Theory of operation
-------------------
A killed process leaves its temporary directory behind, with passwords in it. So each directory has a file
``owner`` that identifies the process that made it. The next start removes directories whose owner has ended.

Rules
-----
* A process is identified by its id *and* its start time, because ids are reused.
* Only a private directory of this user with an owner file is ever removed. If the owner belongs to another
  host or namespace of process ids, its end cannot be checked here and the directory stays. A previous boot of
  this host has certainly ended.
* A directory that cannot be removed is left for the next start.

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
# Bytes; an owner file is far smaller, and a larger file is none.
_LONGEST = 4096
# Index after the program's name in /proc/PID/stat, which may contain anything: field 22 is the 20th there.
_START_TIME = 19


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that made a directory.

    :param started: clock ticks from the boot to its start.
    :param boot: id of the host's boot; ``namespace``: its namespace of process ids.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(os.uname().nodename, _boot(), _namespace(), pid, _start_time(pid) or 0)

    @property
    def is_gone(self) -> bool:
        """Return whether the process has certainly ended."""
        if self.host != os.uname().nodename:
            return False
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and _start_time(self.pid) != self.started


def make(prefix: str = PREFIX) -> Path:
    """Make a private directory with an owner file; remove directories whose owner has ended."""
    sweep()
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    with contextlib.suppress(OSError):  # without /proc, owners are unknown and nothing is removed
        (directory / OWNER).write_text(json.dumps(asdict(Owner.this_process())))
    return directory


@contextlib.contextmanager
def temporary(prefix: str = PREFIX) -> Iterator[Path]:
    """Make a directory, and remove it after the body; a forked process that ends in the body keeps it."""
    directory, pid = make(prefix), os.getpid()
    try:
        yield directory
    finally:
        if os.getpid() == pid:
            shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """Remove the directories whose owner has ended."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = _owner(directory)
        with contextlib.suppress(OSError):
            if owner is not None and owner.is_gone:
                shutil.rmtree(directory, ignore_errors=True)
                logger.info("removed %s, which process %d left behind", directory, owner.pid)


def _owner(directory: Path) -> Owner | None:
    """Return the owner of a directory; ``None`` if it is not known for certain."""
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
    """Return the start time of a process; ``None`` if it does not run.

    :raises OSError: if the start time cannot be read.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    # A dead process that was not waited for still has its id.
    return None if fields[0] in {"Z", "X"} else int(fields[_START_TIME])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
