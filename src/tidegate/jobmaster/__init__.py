"""The life of a job, without IO: deploy, fail, restart, stop."""
