"""Deterministic simulation: the real node and client code on virtual time, network and disk, from one
seed.
"""
