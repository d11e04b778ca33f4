"""Results of earlier runs in a file of JSON lines, so that an interrupted grid can continue.

The key of a result is a digest of its inputs: the scenario, the policy, and the code of the simulator and of
the client.  So an old file does no harm: a changed input gives another key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import haclient
from benchmarks.grid.presets import Preset
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

_PACKAGE = Path(haclient.__file__).parent
_MODEL = ("clock", "fleet", "primary", "result", "scenario", "syn", "world")
_PRESETS = ("presets", "preset_clients")
_CLIENT = ("cluster_url", "discovery", "retry")

Figures = dict[str, Any]


class Cache:
    """The results in one file, or only in memory if ``path`` is ``None``.

    Invalid lines, such as a line cut off when a run was killed, are ignored.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._known: dict[str, list[Figures]] = {}
        self._code = {kind: _digest(_sources(kind)) for kind in (Policy, Preset)}

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+", encoding="utf-8")
            self._file.seek(0)
            self._known = dict(_results(self._file))
            self._file.write("\n")  # ends a line that was cut off
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def key(self, scenarios: Sequence[Scenario], client: Policy | Preset) -> str:
        """Return the key of the results of these scenarios with this client."""
        policy = {"preset": client.name} if isinstance(client, Preset) else asdict(client)
        said = json.dumps([[asdict(scenario) for scenario in scenarios], policy], sort_keys=True)
        return _digest([said.encode(), self._code[type(client)].encode()])

    def get(self, key: str) -> list[Figures] | None:
        """Return the figures of each seed; ``None`` if there are none."""
        return self._known.get(key)

    def put(self, key: str, figures: list[Figures]) -> None:
        """Store figures; they are in the file when this returns."""
        self._known[key] = figures
        if self._file is not None:
            self._file.write(json.dumps({"key": key, "figures": figures}) + "\n")
            self._file.flush()


def _results(lines: Iterable[str]) -> Iterable[tuple[str, list[Figures]]]:
    for line in lines:
        try:
            found = json.loads(line)
            yield found["key"], found["figures"]
        except (ValueError, TypeError, KeyError):
            continue


def _sources(kind: type[Policy | Preset]) -> Iterable[bytes]:
    modules = [_PACKAGE / "simulation" / f"{name}.py" for name in _MODEL]
    if kind is Preset:
        modules += [Path(__file__).with_name(f"{name}.py") for name in _PRESETS]
    else:
        modules.append(_PACKAGE / "simulation" / "haclient_clients.py")
        for folder in _CLIENT:
            modules += sorted((_PACKAGE / folder).rglob("*.py"))
    return (module.read_bytes() for module in modules)


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
