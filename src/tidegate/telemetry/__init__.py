"""Metrics of a job as one list: what REST, pages and reporters show."""
