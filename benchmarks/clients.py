"""The clients of bench_clients.py: the command of each, and the reason if one is missing.

Package managers install the third-party clients at the first run. Each program takes ``HOST:PORT ADDRESS
COUNT WARM WINDOW SIZE durable|not-durable`` and prints one line of JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.interop.clients.building import CACHE, MissingClientError, maven, need, run_tool

_HERE = Path(__file__).resolve().parent
_GO, _NODE, _JAVA = _HERE / "go", _HERE / "node", _HERE / "java"
_GO_PROGRAM = _HERE.parent / ".interop" / "bin" / "go_send"
JMS = "Qpid JMS"
WITHOUT_IDS = "haclient.aio submit, no ids"
_PYTHON_CLIENTS = {
    "proton Container": "proton",
    "haclient.aio submit": "submit",
    WITHOUT_IDS: "submit_without_ids",
    "haclient.aio send_many": "send_many",
    "haclient blocking submit": "blocking",
    "haclient blocking send_many": "blocking_send_many",
}


def _go() -> list[str]:
    _GO_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    run_tool(_GO, "go", "build", "-trimpath", "-o", str(_GO_PROGRAM), ".")
    return [str(_GO_PROGRAM)]


def _node() -> list[str]:
    need("node")
    if not (_NODE / "node_modules" / "rhea").is_dir():
        run_tool(_NODE, "npm", "ci", "--no-audit", "--no-fund", "--silent")
    return ["node", str(_NODE / "send.js")]


def _java() -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", quiet, "-cp", maven(_JAVA, CACHE / "benchmark"), "Send"]


def commands() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the command of each client, and the reasons why others are missing."""
    found, missing = {}, {}
    makers: Mapping[str, Callable[[], list[str]]] = {"go-amqp": _go, "rhea": _node, JMS: _java}
    for name, make in makers.items():
        try:
            found[name] = make()
        except MissingClientError as reason:
            missing[name] = str(reason)
    program = str(_HERE / "pipelined.py")
    found |= {name: [sys.executable, program, client] for name, client in _PYTHON_CLIENTS.items()}
    return found, missing
