"""A job as its user sees it: its client, and what is called as the job goes on."""
