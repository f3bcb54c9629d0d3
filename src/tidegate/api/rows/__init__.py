"""Values on their way through a job: as rows, as Arrow columns, by key, by declared type."""
