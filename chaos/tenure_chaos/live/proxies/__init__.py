"""Proxies that the bench puts into connections: Toxiproxy's, or a stand-in's with the same API."""
