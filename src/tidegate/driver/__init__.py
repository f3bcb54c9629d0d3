"""The shell of the job master: one inbox, one loop, one function a command."""
