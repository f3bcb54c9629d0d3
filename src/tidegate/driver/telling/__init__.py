"""What people are told of a job: warnings, spans, its summary, what functions print."""
