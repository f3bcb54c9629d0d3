"""Data that barriers have overtaken: shares of several subtasks in one file."""
