"""The zip for ``spark-submit --py-files``: the analysis alone, without the client and its C library.

    python -m haclient.analysis.io.package dist/haclient.zip
    spark-submit --py-files dist/haclient.zip dist/haclient_analyze.py DIR --out DIR

Rules
-----
* It holds ``haclient.analysis`` and the few other modules that it imports.
  Its ``haclient/__init__.py`` is empty, because the real one imports the client.
* Executors need nothing from it: the transforms are Spark's own expressions.  The driver needs pyspark, and
  Jinja2 for the report.
* The same tree gives the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

SCRIPT = "haclient_analyze.py"
"""The file that ``spark-submit`` runs; it is written next to the zip."""

_RUN = '''"""Runs the analysis: spark-submit --py-files haclient.zip haclient_analyze.py DIR --out DIR."""

import sys

from haclient.analysis.job import main

sys.exit(main())
'''
_EMPTY = '"""A part of haclient: the analysis, without the client."""\n'
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip can hold


def build(path: Path) -> Path:
    """Write the zip to ``path`` and the script next to it; return the script's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _content():
            archive.writestr(zipfile.ZipInfo(name, _FIXED_TIME), data, zipfile.ZIP_DEFLATED)
    script = path.with_name(SCRIPT)
    script.write_text(_RUN)
    return script


def _content() -> Iterator[tuple[str, bytes]]:
    analysis = Path(__file__).parents[1]
    root = analysis.parent
    yield "haclient/__init__.py", _EMPTY.encode()
    for package in ("command_line", "telemetry"):
        yield f"haclient/{package}/__init__.py", _EMPTY.encode()
    for name in ("command_line/python.py", "telemetry/rfc3339.py", "telemetry/schema.py", "version.py"):
        yield f"haclient/{name}", (root / name).read_bytes()
    for path in sorted(analysis.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield f"haclient/{path.relative_to(root).as_posix()}", path.read_bytes()


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program's name, and the file's
        sys.exit("usage: python -m haclient.analysis.io.package FILE.zip")
    build(Path(sys.argv[1]))
