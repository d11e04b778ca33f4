"""Hostile text for every field of a peer that people read, and the check that it is printed safely."""

from __future__ import annotations

# A forged line; escapes for a terminal's colours, title and clipboard; C1 control characters; right-to-left
# text; bells and carriage returns.
EVIL = "x\nFORGED all is well\r\x1b[31m\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x9b31m\u202eesrever\u2028\x00y"


def assert_printable(text: str) -> None:
    """Check that every line is printable and that the peer's forged line is not among them."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("FORGED"), text
