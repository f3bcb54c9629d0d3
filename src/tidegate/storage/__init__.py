"""Bytes in files; the one place where a path is made."""
