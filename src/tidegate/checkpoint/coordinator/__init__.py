"""The driver's half: when checkpoints are taken, completed and given up."""
