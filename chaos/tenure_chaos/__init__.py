"""Tests of a cluster under faults: simulation, live runs, checkers."""
