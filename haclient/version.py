"""The version of this package, and the commands that install its extras."""

from __future__ import annotations

import os
import sys
from functools import cache

# The name that wheels give the folder of the metadata (PEP 376, PEP 427): haclient-1.2.3.dist-info.
_PREFIX, _SUFFIX = "haclient-", ".dist-info"
_FIELD = "Version: "
_NOT_INSTALLED = "0"


@cache
def package_version() -> str:
    """Return the installed version; ``0`` for a source tree that was not installed.

    Reads the metadata at the place where wheels have it.  Only if there is none, it uses
    ``importlib.metadata``, which loads the parsers of e-mail and of zip files: a fifth of the time of
    ``import haclient``, and 2 MB.
    """
    return next(filter(None, map(_version_in, sys.path)), "") or _searched()


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, for the text of an error.

    The package is in no index yet: its name alone could install the package of a stranger.
    """
    checkout = f"pip install '.[{extra}]' in a checkout"
    if package_version() == _NOT_INSTALLED:
        return checkout
    wheel = f"./haclient-{package_version()}-py3-none-any.whl[{extra}]"
    return f"{checkout}, or pip install '{wheel}' beside the wheel"


def _version_in(folder: str) -> str:
    """Return the version whose metadata is in a folder of ``sys.path``; empty if there is none."""
    try:
        names = [name for name in os.listdir(folder or ".") if name.startswith(_PREFIX)]  # noqa: PTH208 - light
        for name in names:
            if name.endswith(_SUFFIX):
                with open(os.path.join(folder, name, "METADATA"), encoding="utf-8") as lines:  # noqa: PTH118, PTH123
                    return next(
                        (line[len(_FIELD) :].strip() for line in lines if line.startswith(_FIELD)), ""
                    )
    except OSError:  # a zip file, or a missing folder
        pass
    return ""


def _searched() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - see above

    try:
        return version("haclient")
    except PackageNotFoundError:
        return _NOT_INSTALLED
