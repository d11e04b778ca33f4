"""A Spark session in a foreign program changes nothing for that program's other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_processes_that_the_program_starts_later_find_what_lies_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own processes do not search there: ``tests/command_line/test_working_directory.py``."""
    assert spark.range(3).count() == 3
    (tmp_path / "beside.py").write_text("found = True\n")
    (tmp_path / "program.py").write_text("import beside; assert beside.found\n")
    subprocess.run([sys.executable, str(tmp_path / "program.py")], env=os.environ, check=True, timeout=60)
