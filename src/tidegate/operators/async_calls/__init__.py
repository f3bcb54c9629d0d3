"""Calls for records: on the loop, on threads or in processes, singly or in batches."""
