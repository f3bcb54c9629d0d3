"""What user code holds: the kinds of state, written once over any backend."""
