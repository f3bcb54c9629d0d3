"""Event time: stamps of records, and how far time has come."""
