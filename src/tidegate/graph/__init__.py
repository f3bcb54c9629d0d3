"""Transformations, the stream graph and the job graph: what is shipped to be run."""
