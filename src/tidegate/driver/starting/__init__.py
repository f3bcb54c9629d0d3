"""What a job begins with: the snapshot that it starts from, and what its sources read."""
