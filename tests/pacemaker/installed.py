"""Checks this machine for the requirements of a cluster."""

from __future__ import annotations

import shutil

from tests.hosts import lab

_TOOLS = ("corosync", "pacemakerd", "crm_mon", "crm", "pcs", "nsenter", "setsid", "flock")


def missing() -> str:
    """Return a sentence with the missing requirements; empty if there are none."""
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found: scripts/setup_pacemaker.sh installs them"
    return lab.missing()
