"""Observe a queue, decide, ask for resizes and carry them out; its programs and actors."""
