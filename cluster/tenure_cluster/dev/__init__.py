"""``tenured dev``: a cluster for development on this machine, one process per node."""
