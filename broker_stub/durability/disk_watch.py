"""A member's reactions to a disk that fills up, before it is full.

Rules
-----
* ``warn``: the log and the status say so.
* ``hold``: producers get no credit, so that consumers can empty queues and free space.
* ``stop``: messages that still arrive wait, unsettled.  A backup stops following its primary, which continues
  without it.  A primary stays primary: an operator or a resource manager decides whether to replace it.
* A level ends only at a quarter more space than its limit, so that it does not flap at the limit.

A member at ``stop`` serves consumers, and can be started and promoted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from broker_stub.store import DiskUsage
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.durability")

MIB = 1024 * 1024
# The default of each level: at most so many bytes, and at most this fraction (one in N) of the file system.
_DEFAULTS = ((1024 * MIB, 5), (256 * MIB, 10), (64 * MIB, 20))
_MAX_RESERVE = 32 * MIB  # the size that the write-ahead log reaches if a checkpoint is late
_HYSTERESIS = 1.25


class DiskLevel(enum.IntEnum):
    """The level that a store's disk has reached."""

    OK, WARN, HOLD, STOP = range(4)

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimits:
    """The bytes of free space below which each level begins; 0 for never.

    :raises ValueError: when they are not in this order.
    """

    warn: int = 0
    hold: int = 0
    stop: int = 0

    def __post_init__(self) -> None:
        if not self.warn >= self.hold >= self.stop >= 0:
            raise ValueError("warn must not be below hold, and hold not below stop")

    @classmethod
    def of(cls, total: int, warn: int | None, hold: int | None, stop: int | None) -> DiskLimits:
        """Return the given limits; each ``None`` becomes the default for a file system of ``total`` bytes."""
        chosen = [
            min(most, total // part) if given is None else given
            for given, (most, part) in zip((warn, hold, stop), _DEFAULTS, strict=True)
        ]
        # A given limit moves adjacent defaults, so that the order holds.
        if hold is None:
            chosen[1] = max(chosen[1], chosen[2]) if warn is None else min(max(chosen[1], chosen[2]), warn)
        if stop is None:
            chosen[2] = min(chosen[2], chosen[1])
        if warn is None:
            chosen[0] = max(chosen[0], chosen[1])
        return cls(warn=chosen[0], hold=chosen[1], stop=chosen[2])

    @property
    def reserve(self) -> int:
        """Bytes that the store reserves for being emptied on a full disk."""
        return min(_MAX_RESERVE, self.stop // 2)


NO_LIMITS = DiskLimits()


class DiskWatch:
    """Tracks the level of one store's disk.

    :param name: the store's name in texts for people.
    """

    def __init__(self, limits: DiskLimits, name: str) -> None:
        self.level = DiskLevel.OK
        self._limits = limits
        self._name = name
        self._usage: DiskUsage | None = None

    def update(self, usage: DiskUsage) -> bool:
        """Take a measurement; return True if the level has changed."""
        self._usage, before = usage, self.level
        self.level = self._level(usage)
        if self.level != before:
            log = logger.info if self.level is DiskLevel.OK else logger.warning
            log("%s", self.describe())
        return self.level != before

    def _level(self, usage: DiskUsage) -> DiskLevel:
        if usage.refused:
            return DiskLevel.STOP
        limits = {
            DiskLevel.STOP: self._limits.stop,
            DiskLevel.HOLD: self._limits.hold,
            DiskLevel.WARN: self._limits.warn,
        }
        for level, limit in limits.items():
            if usage.space < limit * (_HYSTERESIS if self.level >= level else 1):
                return level
        return DiskLevel.OK

    @property
    def holds(self) -> bool:
        """True if producers get no credit."""
        return self.level >= DiskLevel.HOLD

    @property
    def stops(self) -> bool:
        """True if nothing more is stored."""
        return self.level is DiskLevel.STOP

    def add_to(self, error: str) -> str:
        """Return an error, with the full disk as its possible cause."""
        return f"{error}; {self.describe()}" if self.stops else error

    def describe(self) -> str:
        """Return a description for an operator."""
        usage = self._usage
        if usage is None:
            return ""
        left = f"the disk of the store {self._name} has room for {usage.space // MIB} MiB"
        advice = "make room on that file system, or have messages taken"
        match self.level:
            case DiskLevel.OK:
                return left
            case DiskLevel.WARN:
                return f"{left}: below {self._limits.hold // MIB} MiB producers are held up; {advice}"
            case DiskLevel.HOLD:
                return f"{left}: producers are held up; {advice}"
        return f"{usage.refused or left}: nothing is stored any more; {advice}"

    def status(self) -> dict[str, Any] | None:
        """Return the disk's part of the member's status; ``None`` before the first measurement."""
        usage = self._usage
        if usage is None:
            return None
        return {
            "level": str(self.level),
            "space": usage.space,
            "free": usage.free,
            "text": "" if self.level is DiskLevel.OK else self.describe(),
        }
