"""The commands of ``tenure-chaos``, one module each."""
