"""What a peer may put into each field that people read, and what must be left of it there."""

from __future__ import annotations

# A forged line; colours, the title and the clipboard of a terminal; C1 control characters; text from right to
# left; bells and returns.
EVIL = "x\nFORGED all is well\r\x1b[31m\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x9b31m\u202eesrever\u2028\x00y"


def assert_printable(text: str) -> None:
    """Each line is printable, and none is the peer's."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("FORGED"), text
