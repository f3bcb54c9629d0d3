"""Whether snapshots are whole, and what lies beside them that nobody needs."""
