"""The way back: what of a snapshot each operator and each subtask starts from."""
