"""Messages and batches between peers, with credit."""
