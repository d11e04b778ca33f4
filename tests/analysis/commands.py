"""The command ``haclient`` as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-c", "from haclient.cli import main; main()"]
LONGEST = 240.0  # s; 20 s on an idle machine


def environment() -> dict[str, str]:
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}


def haclient(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST, check=False, env=environment()
    )
