"""Functions of whole Arrow batches, and the forms that a batch can be given in."""
