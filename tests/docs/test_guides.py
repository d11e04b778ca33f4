"""The programs of the how-to pages run one after another, as a reader would type them.

A program below the comment ``<!-- not run: REASON -->`` needs a package that is not installed here. It
is only compiled.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import haclient
from haclient.telemetry import flush
from haclient.testing import Broker
from tests.certificates import Authority
from tests.docs.pages import DOCS

GUIDES = (
    "README.md",
    "amazon-mq.md",
    "api.md",
    "brokers.md",
    "configuration.md",
    "metrics.md",
    "migrating.md",
    "producing.md",
    "production.md",
    "security.md",
    "telemetry.md",
)
_PROGRAM = re.compile(r"^(<!-- not run: .+ -->\n\n?)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The hosts of the pages, which a test replaces by its own broker's.
_URL = re.compile(r"amqps?://(?:[\w:%-]+@)?(?:broker-a,broker-b|artemis-a,artemis-b)")
# The folders of the pages, which a test replaces by its own.
_FOLDER = re.compile(r"/var/log/app|/etc/orders|/run/secrets|/etc/ssl")
# A port of the pages, which a test replaces by any free one.
_PORT = re.compile(r"(?<=start_http_server\()\d+")


@pytest.mark.parametrize("name", GUIDES)
def test_its_programs_run(
    name: str, haclient_module_broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    haclient_module_broker.restore()
    monkeypatch.setenv("HACLIENT_URL", haclient_module_broker.url)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / name).read_text()
    configuration_files(page, tmp_path, haclient_module_broker.url)
    names: dict[str, Any] = {"__name__": "__main__"}
    programs = _PROGRAM.findall(page)
    assert programs
    for not_run, program in programs:
        here = _FOLDER.sub(str(tmp_path), _URL.sub(haclient_module_broker.url, _PORT.sub("0", program)))
        code = compile(here, name, "exec")
        if not not_run:
            exec(code, names)  # noqa: S102
    for each in list(names.values()):
        if isinstance(each, haclient.Connection | haclient.ConnectionFactory):
            each.close()


def configuration_files(page: str, folder: Path, url: str) -> None:
    """Create the files that ``docs/configuration.md`` shows or names, at the paths its programs use."""
    for toml in re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        (folder / "haclient.toml").write_text(_FOLDER.sub(str(folder), toml))
        (folder / "broker").write_text("a password\n")
        Authority(folder).file.rename(folder / "brokers.pem")
    host, port = url.rpartition("/")[2].split(":")
    (folder / "connect.json").write_text(json.dumps({"scheme": "amqp", "host": host, "port": int(port)}))


def test_the_telemetry_that_the_page_shows_has_the_connection(
    haclient_module_broker: Broker, tmp_path: Path
) -> None:
    (program,) = [text for _, text in _PROGRAM.findall((DOCS / "telemetry.md").read_text())]
    exec(_FOLDER.sub(str(tmp_path), _URL.sub(haclient_module_broker.url, program)), {})  # noqa: S102
    flush()
    (file,) = tmp_path.glob("orders-*.jsonl")
    types = [json.loads(line)["type"] for line in file.read_text().splitlines()]
    assert types[-2:] == ["haclient.connection.connected", "haclient.connection.closed"]
