"""The demonstration: real flights as a stream, a process killed, the result checked."""
