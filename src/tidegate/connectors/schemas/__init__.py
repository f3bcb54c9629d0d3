"""Conversion of values to bytes of a message, and back: text, JSON and CSV."""
