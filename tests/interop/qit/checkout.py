"""What the runner takes from a checkout of qpid-interop-test: its values, and its shims with what they need.

Nothing of it is kept here.  Values are the constants of its modules, which are read and not run.

Source: qpid-interop-test 2.0, its modules of types and of tests of JMS, "How to Write a QIT Shim".
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = Path(__file__).with_name("shims")
# Shims of its own that need more than what their folder has.
PYTHON, RHEA = "python-proton", "javascript-rhea"


@dataclass(frozen=True, slots=True)
class Shim:
    """A program that shows one client.

    :param speaks_jms: whether its messages are those of JMS.
    :param fails_over: whether it takes several members, and survives the death of one.
    :param joins: the suites whose values it sends in one run, each by its own type; others take one type.
    """

    key: str
    folder: Path
    speaks_jms: bool
    fails_over: bool
    broker_prefix: str = "amqp://"
    joins: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        """What is run."""
        return self.folder / "shim.sh"

    @property
    def missing(self) -> str:
        """Why it cannot run; empty if it can."""
        if self.key == RHEA:
            found = (self.folder / "node_modules/rhea").is_dir() or "NODE_PATH" in os.environ
            return "" if found and shutil.which("node") else "npm's rhea is not beside it, nor in NODE_PATH"
        built = any(self.folder.glob("target/*.jar"))
        if (self.folder / "pom.xml").exists() and not (built and shutil.which("java")):
            return "its jar is not there"
        if (self.folder / "CMakeLists.txt").exists() and not (self.folder / "build/qit_shim").exists():
            return "its program is not there"
        if any(self.folder.glob("*.csproj")) and not shutil.which("dotnet"):
            return ".NET is not there"
        return ""


def shims(checkout: Path) -> list[Shim]:
    """Ours and those of the checkout, whether they can run or not."""
    return [*_shims_in(OURS, fails_over=True), *_shims_in(checkout / "shims", fails_over=False)]


def _shims_in(folder: Path, *, fails_over: bool) -> Iterator[Shim]:
    for manifest in sorted(folder.glob("*/shim.json")):
        said = json.loads(manifest.read_text())
        yield Shim(
            manifest.parent.name,
            manifest.parent,
            speaks_jms=said["type"] == "jms",
            fails_over=fails_over,
            broker_prefix=said.get("broker_prefix", "amqp://"),
            joins=("types", "complex") if fails_over else ("types",) * (manifest.parent.name == PYTHON),
        )


def environment() -> Mapping[str, str]:
    """Where the shims find this interpreter, and with it proton, under the name ``python3`` too."""
    folder = Path(sys.executable).parent
    return {**os.environ, "PYTHON": sys.executable, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def type_values(checkout: Path) -> dict[str, list[Any]]:
    """The values of each AMQP type, by its name: primitive types, then compound ones."""
    found: dict[str, list[Any]] = {}
    for module in ("primitives", "composites"):
        for value in _constants(checkout / "src/qit/types" / f"{module}.py").values():
            if isinstance(value, dict) and {"type", "values"} <= value.keys():
                found[value["type"]] = value["values"]
    if not found:
        raise SystemExit(f"{checkout} has no values: is it a checkout of qpid-interop-test 2.0?")
    return found


def jms_values(checkout: Path) -> dict[str, Any]:
    """Bodies, headers and properties of messages of JMS, by the names that its tests have for them."""
    found = _constants(checkout / "tests/test_jms_unified.py")
    return {name: value for name, value in found.items() if name.isupper()}


def _constants(path: Path) -> dict[str, Any]:
    """The constants of a module and of its classes."""
    found: dict[str, Any] = {}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = _value(node.value)
            except ValueError:
                continue  # an expression: not data
    return found


def _value(node: ast.expr) -> Any:
    """A literal, in which texts and bytes may be repeated by ``*``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _value(node.left) * _value(node.right)
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        pairs = zip(keys, node.values, strict=True)
        return {_value(key): _value(value) for key, value in pairs}
    return ast.literal_eval(node)
