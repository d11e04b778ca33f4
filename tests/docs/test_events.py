"""``docs/testing.md`` lists exactly the events of ``haclient.events``."""

from __future__ import annotations

import dataclasses
import re
import typing

from haclient import events
from tests.docs.pages import DOCS

ROW = re.compile(r"^\| `([A-Z]\w+)` \| [^|]+ \| ([^|]*)\|$", re.MULTILINE)


def test_each_event_has_its_row_and_the_attributes_named_there() -> None:
    rows = dict(ROW.findall((DOCS / "testing.md").read_text()))
    classes = {each.__name__: each for each in typing.get_args(events.Event)}
    assert rows.keys() == classes.keys()
    for name, text in rows.items():
        fields = {field.name for field in dataclasses.fields(classes[name])}
        assert set(re.findall("`([a-z_]+)`", text)) - {"failure"} <= fields, name
