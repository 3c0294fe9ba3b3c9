"""What runs in a node's process: the real program, watched, and able to misbehave when it is told to."""
