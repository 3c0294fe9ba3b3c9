"""Checks over a recorded history. Nothing in here imports the server or the client."""
