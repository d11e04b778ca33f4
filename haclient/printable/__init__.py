"""Text of others at the borders where people read it: log records, texts of exceptions, lines and cells.

A peer chooses condition descriptions, container ids, names and bodies.  A newline in one of them forges a
log line, and an escape sequence moves the cursor, changes the title or the clipboard of the terminal that
shows it.  Each character that is not printable becomes its escape, as in the source of a Python program:
newlines, ESC and the other control characters, those that turn the direction of text, lone surrogates.
Values that a program reads (attributes of errors and events, telemetry, message bodies) stay as they are.

Sources: Unicode Technical Report 36, section 2.5 (direction of text); ECMA-48 (control sequences).
"""
