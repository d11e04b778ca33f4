"""Whether telemetry is written, where and how.

The ``telemetry`` argument wins over the URL option, which wins over ``HACLIENT_TELEMETRY``.  An
empty text turns it off, and so does ``telemetry=none`` in a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

VARIABLE = "HACLIENT_TELEMETRY"
_SERVICE_VARIABLE = "OTEL_SERVICE_NAME"  # OpenTelemetry, environment variable specification
DEFAULT_SERVICE = "haclient"

# The values of Redis's ``appendfsync``, which operators know.
Fsync = Literal["no", "everysec", "always"]

_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]+")
# Room for the rest of the name within the 255 bytes of most file systems.
_LONGEST_STEM = 100


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How telemetry is written.

    :param directory: where; made when it is missing.
    :param service: name of the application; ``None`` for ``OTEL_SERVICE_NAME``.
    :param rotate_size: bytes after which a file is closed and compressed.
    :param rotate_seconds: seconds after which it is.
    :param keep_size: bytes of all files of the service in the directory above which the oldest are removed,
        also those of former processes; ``None`` keeps them.
    :param keep_seconds: seconds after their last line after which they are, likewise.
    :param fsync: when written lines are forced to the disk: by the system (``no``), once a second,
        or after each write (``always``).
    :param queue_size: events that may wait to be written; further ones are dropped and counted.
    :param alive_interval: seconds between two ``alive`` lines of a connection.
    :raises ValueError: names the setting that is wrong.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    service: str | None = None
    rotate_size: int = 64 * 1024 * 1024
    rotate_seconds: float = 3600.0
    keep_size: int | None = None
    keep_seconds: float | None = None
    fsync: Fsync = "no"
    # Five thousand connections of one process, with all that a storm lets happen to each.
    queue_size: int = 50_000
    alive_interval: float = 60.0

    def __post_init__(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - telemetry is seldom on

        # Now: the application may change its directory before the first line is written.
        directory = os.fsdecode(self.directory)
        if not directory or "\0" in directory:
            raise ValueError(f"telemetry setting 'directory': {directory!r} is no path")
        object.__setattr__(self, "directory", str(Path(directory).absolute()))
        for name in (
            "rotate_size",
            "rotate_seconds",
            "keep_size",
            "keep_seconds",
            "queue_size",
            "alive_interval",
        ):
            value = getattr(self, name)
            if value is None and name.startswith("keep_"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"telemetry setting {name!r}: {value!r} is not a number above 0")
        if self.fsync not in get_args(Fsync):
            raise ValueError(f"telemetry setting 'fsync': {self.fsync!r} is not no, everysec or always")

    def service_name(self, environ: Mapping[str, str] | None = None, default: str = DEFAULT_SERVICE) -> str:
        """The name of the application.

        :param environ: the variables; ``None`` for those of the process.
        """
        environ = os.environ if environ is None else environ
        return self.service or environ.get(_SERVICE_VARIABLE) or default


def resolve(
    argument: TelemetrySettings | None, option: str | None, environ: Mapping[str, str] | None = None
) -> TelemetrySettings | None:
    """The settings in force, ``None`` for off.

    :param option: a directory; empty for off, ``None`` for whatever the environment says.
    :param environ: the variables; ``None`` for those of the process.
    """
    environ = os.environ if environ is None else environ
    if argument is not None:
        return argument
    directory = environ.get(VARIABLE) if option is None else option
    return TelemetrySettings(directory) if directory else None


def file_stem(service: str) -> str:
    """The service as the beginning of a file's name.

    Never with a dot or an underscore first: Spark does not read such files.
    """
    return _NOT_IN_A_FILE_NAME.sub("-", service).strip("-.")[:_LONGEST_STEM] or DEFAULT_SERVICE
