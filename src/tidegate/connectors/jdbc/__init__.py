"""Databases, by the drivers that Python has for them."""
