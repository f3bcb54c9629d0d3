"""Checks that snapshots are complete, and finds files beside them that nobody needs."""
