"""One subtask: its operators, its turns, and how it is built."""
