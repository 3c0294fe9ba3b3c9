"""Tenure's server: a lease state machine replicated through Raft, behind an HTTP front end."""

__version__ = "0.1.0"
