"""Reports to people about a job: warnings, spans, its summary, printed lines."""
