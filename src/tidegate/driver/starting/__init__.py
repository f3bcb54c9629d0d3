"""Start of a job: its snapshot, and the data that its sources read."""
