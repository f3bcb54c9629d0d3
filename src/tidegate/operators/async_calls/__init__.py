"""How calls for records are made: on the loop, on threads or in processes, singly or in batches."""
