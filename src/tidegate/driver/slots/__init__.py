"""The slots of a running job, as its driver sees them: their links, and what is asked of them."""
