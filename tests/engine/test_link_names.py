"""Names of links, some of which the peer chooses."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from cproton_ffi import ffi, lib

from haclient.engine.link_table import LinkTable
from haclient.engine.links import SenderLink


@pytest.mark.parametrize("name", [None, b"\xff\xfe", b"other"])
def test_a_link_that_the_peer_named_in_any_way_is_in_nobodys_way(name: bytes | None) -> None:
    connection = proton.Connection()
    session = connection.session()
    table, called = LinkTable(), ffi.NULL if name is None else ffi.new("char[]", name)
    own = ffi.new("char[]", b"mine")
    for number, pointer in enumerate((called, own)):
        link: Any = SenderLink.__new__(SenderLink)
        link._pn, link.closed_here = lib.pn_sender(session._impl, pointer), True
        table.by_pointer[number] = link
    assert table.when_free(SenderLink, "mine", lambda: None)
    assert not table.when_free(SenderLink, "yours", lambda: None)
