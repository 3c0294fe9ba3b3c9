"""The commands of ``tenure``; cli.py puts them together."""
