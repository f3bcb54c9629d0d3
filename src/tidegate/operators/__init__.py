"""Operators on batches: a folder for each kind, a file for each operator."""
