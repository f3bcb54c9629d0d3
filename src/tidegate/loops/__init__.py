"""Loops around calls of user functions, in two forms of one source: compiled and interpreted."""
