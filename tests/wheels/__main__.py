"""Install dist/ into bare Debian roots and run the demonstration there: ``python -m tests.wheels``.

Each root has a minimal Debian and Python's ``venv``: no compiler, no headers, no library of SASL.  One
``pip install`` installs the wheels.  The demonstration starts a pair, sends and receives, and kills the
primary twice; it ends with an error if a message is missing.

Needs root, ``debootstrap`` and ``unshare``.  The roots stay in .wheels/ for the next run.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_DIST, _WORK = ROOT / "dist", ROOT / ".wheels"
# Debian's releases, and the version of Python in each.
RELEASES = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}
_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
_MIRROR = re.compile(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+)", re.MULTILINE)


def main() -> int:
    """Print a line for each step; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=RELEASES, default=list(RELEASES))
    arguments = parser.parse_args()
    if not list(_DIST.glob("haclient-*.whl")):
        sys.exit("dist/ has no wheel of haclient: run make wheels")
    failed = [release for release in arguments.only if not _try(release)]
    return 1 if failed else 0


def _try(release: str) -> bool:
    root = _bare(release)
    wheels = root / "wheels"
    for former in (wheels, root / "environment"):
        shutil.rmtree(former, ignore_errors=True)
    shutil.copytree(_DIST, wheels)
    shutil.copytree(ROOT / "examples", root / "examples", dirs_exist_ok=True)
    _collect(RELEASES[release], wheels)
    compilers = [name for name in ("gcc", "cc", "clang") if (root / "usr/bin" / name).exists()]
    assert not compilers, f"{release} has {compilers}"
    pip = ("/environment/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels", "haclient")
    total = 0.0
    for name, command in (
        ("venv", ("python3", "-m", "venv", "/environment")),
        ("pip install", pip),
        ("first message", ("/environment/bin/python", "-c", _FIRST)),
        ("two failovers", ("/environment/bin/python", "/examples/failover_demo.py")),
    ):
        cpu, seconds, code, output = _run(root, command)
        total += cpu if name != "two failovers" else 0.0
        _say(f"{release}, Python {RELEASES[release]}, {name}: {cpu:.1f} s of processor, {seconds:.1f} s")
        if code:
            _say(output)
            return False
    _say(f"{release}: {total:.1f} s until the first settled message; {_megabytes(root)} MB installed")
    return True


_FIRST = """
from haclient.testing.pair import broker
import haclient
with broker() as member, haclient.connect(member.url) as connection:
    with connection.create_sender("q") as sender:
        assert sender.send("first").accepted
"""


def _bare(release: str) -> Path:
    """Return the root of a release; make it if it is not there."""
    root, new = _WORK / release, _WORK / f"{release}.new"
    if not root.exists():
        shutil.rmtree(new, ignore_errors=True)
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3,python3-venv"]
        mirrors = [found for path in map(Path, _SOURCES) if path.exists() for found in _mirrors(path)]
        # An older debootstrap does not know the latest releases, which differ in nothing that it does.
        script = [] if (_SCRIPTS / release).exists() else [str(_SCRIPTS / "sid")]
        if not mirrors:
            sys.exit(f"{' and '.join(_SOURCES)} name no mirror of Debian")
        command += [release, str(new), mirrors[0], *script]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        new.rename(root)
    return root


def _mirrors(path: Path) -> list[str]:
    return _MIRROR.findall(path.read_text())


def _collect(python: str, folder: Path) -> None:
    """Download the wheels of the dependencies for a version of Python: a bare root has no certificates."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--python-version", python, "--dest", str(folder), *map(str, _DIST.glob("*.whl"))]
    subprocess.run(command, check=True)


def _megabytes(root: Path) -> int:
    files = (path for path in (root / "environment").rglob("*") if path.is_file() and not path.is_symlink())
    return round(sum(path.stat().st_size for path in files) / 1e6)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(root: Path, command: tuple[str, ...]) -> tuple[float, float, int, str]:
    """Return the seconds of processor time and in all, the exit code and the output."""
    inside = f'mount -t proc proc {root}/proc && ip link set lo up 2>/dev/null; exec chroot {root} "$@"'
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", inside, "sh", *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - begun, done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
