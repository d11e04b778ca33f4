"""Loggers whose records are printable lines."""

from __future__ import annotations

import logging

from haclient.printable.text import printable, printable_lines


def get_logger(name: str) -> logging.Logger:
    """Return a logger of this project: each of its records is one printable line, whatever its arguments."""
    logger = logging.getLogger(name)
    logger.addFilter(_escape)  # adding the same function again has no effect
    return logger


def _escape(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if not text.isprintable():
        record.msg, record.args = printable(text), None
    if record.exc_info and not record.exc_text:
        record.exc_text = printable_lines(_FORMATTER.formatException(record.exc_info))
    return True


_FORMATTER = logging.Formatter()
