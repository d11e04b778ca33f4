"""Refuse cycles of imports at run time, and folders and modules that grew too large.

``.make-venv/bin/python scripts/check_tree.py [ROOT]``; import-linter checks the layers (``pyproject.toml``).

Rules
-----
* At run time, modules never import each other in a circle.  Imports inside functions count.
* Including the imports that only type checkers read, at most four modules reach each other: a larger group
  cannot be read one module at a time.
* A folder has at most 15 modules, without ``__init__`` and ``__main__``; a module has at most 500 lines.
* Each folder has a README of at most ten lines; the README of ``haclient`` is a table of at most twenty rows.
* The last two rules hold for the folders in ``benchmarks/`` too, but not for the scripts there, which run
  alone.
"""

from __future__ import annotations

import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

PACKAGES = ("haclient", "broker_stub", "benchmarks")
FOLDERS = ("haclient", "broker_stub", "benchmarks/grid", "benchmarks/storm")
MOST_IN_CIRCLES = 4
MOST_MODULES = 15
MOST_LINES = 500
MOST_README_LINES = 10
MOST_TABLE_LINES = 25
_TABLE = "haclient"


def circles() -> Iterator[str]:
    """Return the first circle of imports at run time, if there is one, among the packages on ``sys.path``."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        yield "modules import each other at run time: " + " <- ".join(error.args[1])


def knots() -> Iterator[str]:
    """Return the groups of modules that all reach each other, with the imports for type checkers."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    seen: set[str] = set()
    for name in sorted(graph.modules):
        if name not in seen:
            below = graph.find_upstream_modules(name)
            knot = {name, *(each for each in graph.find_downstream_modules(name) if each in below)}
            seen |= knot
            if len(knot) > MOST_IN_CIRCLES:
                yield f"{len(knot)} modules import each other: {', '.join(sorted(knot))}"


def oversized(root: Path) -> Iterator[str]:
    """Yield folders with too many modules, modules with too many lines, and missing or long READMEs."""
    folders = {path.parent for folder in FOLDERS for path in (root / folder).rglob("*.py")}
    for folder in sorted(folders):
        name = folder.relative_to(root)
        modules = [path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
        if len(modules) > MOST_MODULES:
            yield f"{name}: {len(modules)} modules, at most {MOST_MODULES}"
        for module in sorted(modules):
            lines = len(module.read_text().splitlines())
            if lines > MOST_LINES:
                yield f"{name}/{module.name}: {lines} lines, at most {MOST_LINES}"
        readme = folder / "README.md"
        if not readme.exists():
            yield f"{name}: no README.md"
        elif len(readme.read_text().splitlines()) > (most := _most_lines(str(name))):
            yield f"{name}/README.md: more than {most} lines"


def _most_lines(folder: str) -> int:
    """Return the most lines that the README of a folder may have."""
    return MOST_TABLE_LINES if folder == _TABLE else MOST_README_LINES


def main() -> int:
    """Print every fault and return 1 if there is one."""
    root = Path(sys.argv[1] if sys.argv[1:] else ".").resolve()
    sys.path.insert(0, str(root))
    found = [*circles(), *knots(), *oversized(root)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
