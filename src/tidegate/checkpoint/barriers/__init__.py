"""A subtask's half: which channels wait for a barrier, and when the snapshot is taken."""
