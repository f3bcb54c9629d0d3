"""Dry run of an upgrade: compares a program with a snapshot, without starting anything."""
