"""A loop that hosts subtasks: the corridor of all records."""
