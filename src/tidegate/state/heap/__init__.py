"""Keyed state in memory: its tables, its snapshots, its increments."""
