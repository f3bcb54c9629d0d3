"""State in user code: its kinds, written once over any backend."""
