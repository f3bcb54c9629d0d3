"""What happens to a batch: a file an operator."""
