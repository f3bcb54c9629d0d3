"""Event time: timestamps of records, and watermarks."""
