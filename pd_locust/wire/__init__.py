"""Bytes in, StreamTiming out. Only transport.py touches a socket; nothing here reads a clock of its own."""
