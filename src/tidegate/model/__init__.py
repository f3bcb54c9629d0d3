"""Frozen values that every room shares: ids, elements, handles, topology, messages."""
