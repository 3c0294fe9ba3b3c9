"""The lease state machine: pure, total and deterministic.

No I/O, no clock, no randomness, no logging, no asyncio. Time comes in as an argument, and every
refusal is a value.
"""
