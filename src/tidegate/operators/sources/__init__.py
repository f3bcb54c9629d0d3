"""Sources: the reader in the slot, the coordinator on the driver, and their messages."""
