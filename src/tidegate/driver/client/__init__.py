"""Asking a running job: its handle in this process, and the door for other processes."""
