"""Keyed and operator state: kinds, backends, snapshots and their bytes."""
