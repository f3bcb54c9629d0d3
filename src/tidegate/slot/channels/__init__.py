"""Channels of a subtask: its input queues, its outputs, and the links that carry them."""
