"""A disk of a few megabytes that a test can fill: a tmpfs in its own mount namespace.

    with SmallDisk(tmp_path / "a", "64m") as disk:
        member.process = MemberProcess(..., wrapper=disk.wrapper)
        disk.fill()

Only commands that are started with the wrapper see the mount, which ends with the namespace.  The test sees
it below ``inside``.  Without root the test is skipped; if root may not mount, it fails with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

_BLOCK = bytes(65536)
_TOOLS = ("unshare", "nsenter", "mount", "sleep")


class SmallDisk:
    """A small disk, mounted at a path.

    :param size: as in the option ``size`` of a tmpfs.
    """

    def __init__(self, path: Path, size: str) -> None:
        if os.geteuid() != 0:
            pytest.skip("a disk that can be filled needs root: it is a mount in a namespace of its own")
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        assert not missing, f"install util-linux: {missing} are missing"
        path.mkdir(exist_ok=True)
        self._path = path
        script = f'mount -t tmpfs -o size={size},mode=700 small "{path}" && echo ready && exec sleep infinity'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        assert said == "ready\n", f"no tmpfs can be mounted in a namespace (CAP_SYS_ADMIN): {said}"
        self.wrapper = ("nsenter", "--target", str(self._holder.pid), "--mount")
        """The prefix of a command that sees the disk."""
        self.inside = Path(f"/proc/{self._holder.pid}/root") / path.relative_to("/")

    @property
    def _filler(self) -> Path:
        return self.inside / "filler"

    @property
    def free(self) -> int:
        found = os.statvfs(self.inside)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Fill the disk except for this many bytes; with none left, a write of one byte fails."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while not leave or self.free > leave:
                file.write(_BLOCK[: max(1, min(len(_BLOCK), self.free - leave))])
        assert self.free <= leave

    def make_room(self) -> None:
        """Delete the filler."""
        self._filler.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()
