"""State of one operator of a snapshot: keyed streams, states as rows, and how they are declared."""
