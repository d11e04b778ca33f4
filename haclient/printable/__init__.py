"""Make foreign text safe to print, in log records, texts of exceptions, lines and table cells.

A peer chooses condition descriptions, container ids, names and bodies.  A newline in one of them forges a
log line.  An escape sequence moves the cursor, or changes the title or the clipboard of the terminal that
shows it.  Each unprintable character is replaced by its escape, as in the source of a Python program.
These are newlines, ESC and the other control characters, characters that turn the direction of text, and
lone surrogates.  Values for programs (attributes of errors and events, telemetry, message bodies) are
unchanged.

Sources: Unicode Technical Report 36, section 2.5 (direction of text); ECMA-48 (control sequences).
"""
