"""Routes: the answer for each path."""
