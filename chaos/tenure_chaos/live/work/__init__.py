"""What runs in a client's process: the simulation's kinds of work, on the real client and real time."""
