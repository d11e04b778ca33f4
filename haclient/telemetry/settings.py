"""Settings of telemetry: whether, where and how it is written.

The ``telemetry`` argument takes precedence over the URL option, and the option over ``HACLIENT_TELEMETRY``.
An empty text turns it off, and so does ``telemetry=none`` in a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from haclient.cluster_url.attribute_list import parse_attributes

if TYPE_CHECKING:
    from haclient.telemetry.resource import Attributes

VARIABLE = "HACLIENT_TELEMETRY"
DEFAULT_SERVICE = "haclient"

# The values of Redis's ``appendfsync``, which operators know.
Fsync = Literal["no", "everysec", "always"]

_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]+")
# Leaves space for the rest of the name within the 255 bytes of most file systems.
_LONGEST_STEM = 100


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How telemetry is written.

    :param directory: of the files; made when it is missing.
    :param service: name of the application; ``None`` for ``attributes``'s or ``OTEL_SERVICE_NAME``.
    :param attributes: OpenTelemetry's resource attributes (``resource``), by which the fleet is grouped.
        ``OTEL_RESOURCE_ATTRIBUTES`` adds any that are missing.
    :param rotate_size: bytes after which a file is closed and compressed.
    :param rotate_seconds: seconds after which a file is closed and compressed.
    :param keep_size: bytes of all files of the service in the directory, also of former processes.  Beyond it
        the oldest are removed; ``None`` keeps them.
    :param keep_seconds: seconds after its last line after which a file is removed; ``None`` keeps it.
    :param fsync: when written lines are forced to the disk: by the system (``no``), once a second, or after
        each write (``always``).
    :param queue_size: events that may wait to be written; further ones are dropped and counted.
    :param alive_interval: seconds between two ``alive`` lines of a connection.
    :raises ValueError: names the setting that is wrong.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    service: str | None = None
    attributes: Mapping[str, str] | None = None
    rotate_size: int = 64 * 1024 * 1024
    rotate_seconds: float = 3600.0
    keep_size: int | None = None
    keep_seconds: float | None = None
    fsync: Fsync = "no"
    # Enough for five thousand connections of one process in a connection flood.
    queue_size: int = 50_000
    alive_interval: float = 60.0

    def __post_init__(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - telemetry is seldom on

        # Resolved now: the application may change its working directory before the first line is written.
        directory = os.fsdecode(self.directory)
        if not directory or "\0" in directory:
            raise ValueError(f"telemetry setting 'directory': {directory!r} is no path")
        object.__setattr__(self, "directory", str(Path(directory).absolute()))
        if self.attributes is not None:
            object.__setattr__(self, "attributes", _attributes(self.attributes))
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

    def resource(self, environ: Mapping[str, str] | None = None) -> Attributes:
        """Return the resource attributes by which the fleet is grouped.

        :param environ: the variables; ``None`` for the process's.
        """
        from haclient.telemetry import resource  # noqa: PLC0415 - telemetry is seldom on

        found = resource.from_environment(os.environ if environ is None else environ)
        given = {**(self.attributes or {}), **({resource.SERVICE: self.service} if self.service else {})}
        return resource.Attributes(given).over(found)


def _attributes(given: Mapping[str, str]) -> Attributes:
    from haclient.telemetry.resource import Attributes  # noqa: PLC0415

    try:
        return Attributes(given)
    except ValueError as error:
        raise ValueError(f"telemetry setting 'attributes': {error}") from None


def resolve(
    argument: TelemetrySettings | None,
    option: str | None,
    environ: Mapping[str, str] | None = None,
    *,
    attributes: str | None = None,
) -> TelemetrySettings | None:
    """Return the settings in force; ``None`` if telemetry is off.

    :param option: a directory; empty for off; ``None`` uses the environment.
    :param environ: the variables; ``None`` for the process's.
    :param attributes: the option of that name: attributes that the argument's settings lack.
    """
    environ = os.environ if environ is None else environ
    directory = environ.get(VARIABLE) if option is None else option
    settings = argument or (TelemetrySettings(directory) if directory else None)
    if settings is None or attributes is None:
        return settings
    return replace(settings, attributes={**parse_attributes(attributes), **(settings.attributes or {})})


def file_stem(service: str) -> str:
    """Return the service as the beginning of a file's name.

    The name never starts with a dot or an underscore: Spark does not read such files.
    """
    return _NOT_IN_A_FILE_NAME.sub("-", service).strip("-.")[:_LONGEST_STEM] or DEFAULT_SERVICE
