"""Damage to the store of a stopped member."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

_BLOCK = bytes(64 * 1024)


def wipe(store: Path, rng: random.Random) -> None:
    """Remove everything."""
    for path in store.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def truncate(store: Path, rng: random.Random) -> None:
    """Cut the end of the database."""
    database = store / "store.db"
    with database.open("r+b") as file:
        file.truncate(rng.randrange(database.stat().st_size))


def flip(store: Path, rng: random.Random) -> None:
    """Change some bytes of the database, or of its log."""
    files = [path for path in (store / "store.db", store / "store.db-wal") if path.stat().st_size]
    data = bytearray((path := rng.choice(files)).read_bytes())
    for _ in range(16):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def lose_log(store: Path, rng: random.Random) -> None:
    """Remove the write-ahead log."""
    (store / "store.db-wal").unlink(missing_ok=True)


KINDS: tuple[Callable[[Path, random.Random], None], ...] = (wipe, truncate, flip, lose_log)


def apply(store: Path, rng: random.Random) -> str:
    """Damage a store in one of these ways; return which."""
    for earlier in store.glob("damaged-*"):
        shutil.rmtree(earlier)
    kind = rng.choice(KINDS)
    kind(store, rng)
    return kind.__name__


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(_BLOCK):
                pass
            raise AssertionError("the disk took less than it was given, and no error")
        except OSError:
            pass
