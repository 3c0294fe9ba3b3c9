"""The use cases: who leads, what is admitted, when it is, and what the answer means to the caller."""
