"""The live bench: real node processes, real client processes, real faults between and under them."""
