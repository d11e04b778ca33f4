"""Generate pages and files from the code.

Run it after changing an option, a telemetry key or a public docstring.  It writes the tables of docs/, the
signature of the options for type checkers, and the JSON Schemas of telemetry.

    .make-venv/bin/python -m scripts.generate
"""

from __future__ import annotations

import re
from pathlib import Path

from haclient.cluster_url.jms_options import ACTIVEMQ_LIST, QPID_JMS_LIST, QPID_JMS_MEMBER
from haclient.cluster_url.qpid_options import QPID_CPP
from haclient.telemetry.schema import markdown_table
from scripts.generate import json_schema
from scripts.generate.api_names import fill_names
from scripts.generate.option_reference import option_types, options_table
from scripts.generate.tables import (
    attributes_table,
    counterparts_table,
    error_entries,
    keys_table,
    values_table,
)

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "docs" / "api.md"
URLS = ROOT / "docs" / "urls.md"
OPTION_TYPES = ROOT / "haclient" / "cluster_url" / "option_types.py"
TABLES = (
    (ROOT / "docs" / "errors.md", "entries", error_entries),
    (ROOT / "docs" / "options.md", "options", options_table),
    (ROOT / "docs" / "telemetry.md", "attributes", attributes_table),
    (ROOT / "docs" / "telemetry.md", "contract", keys_table),
    (ROOT / "docs" / "telemetry.md", "values", values_table),
    (ROOT / "docs" / "telemetry.md", "keys", markdown_table),
    (URLS, "qpid-jms", lambda: counterparts_table(QPID_JMS_LIST)),
    (URLS, "activemq", lambda: counterparts_table(ACTIVEMQ_LIST)),
    (URLS, "qpid-cpp", lambda: counterparts_table(QPID_CPP)),
    (URLS, "qpid-jms-members", lambda: counterparts_table(QPID_JMS_MEMBER)),
)


def fill(text: str, name: str, content: str) -> str:
    """Return the text with ``content`` between the markers of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content.strip()}\n{match[2]}", text)


if __name__ == "__main__":
    for page, name, table in TABLES:
        page.write_text(fill(page.read_text(), name, table()))
    API.write_text(fill_names(API.read_text()))
    OPTION_TYPES.write_text(option_types())
    json_schema.write()
