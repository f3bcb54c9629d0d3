"""Windows: of any kind record by record, aligned ones and sessions in faster ways, of batches."""
