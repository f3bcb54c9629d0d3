"""Records who leads a job, which of its checkpoints are complete, and its next checkpoint id."""
