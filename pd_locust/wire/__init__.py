"""Bytes in, StreamTiming out. Only connection.py touches a socket; nothing here reads a clock of its own."""
