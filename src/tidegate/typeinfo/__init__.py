"""What a value is, how it becomes bytes or a column, whether old bytes still fit, its key hash."""
