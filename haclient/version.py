"""The version of this package."""

from __future__ import annotations

from functools import cache


@cache
def package_version() -> str:
    """The installed version; ``0`` for a source tree that was not installed."""
    # Loaded here: it takes as long as a fifth of the whole import of the package.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("haclient")
    except PackageNotFoundError:
        return "0"
