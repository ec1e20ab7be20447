"""Errors split by whose they are: yours (configuration), the server's (stream), the file's (history)."""

from __future__ import annotations


class PdLocustError(Exception):
    """Every error this package raises on purpose. Its text says what, where and what to do."""


class ConfigError(PdLocustError):
    """An option, a target or a tier file that cannot work as given. Exit code 2."""


class StreamError(PdLocustError):
    """The server's answer broke the protocol in a way that only the reader can see."""


class HistoryError(PdLocustError):
    """A recorded file that cannot be read as what its name says. Exit code 2."""
