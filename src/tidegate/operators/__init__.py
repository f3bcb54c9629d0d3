"""What happens to a batch: a folder for each kind of operator, a file for each operator."""
