"""The decision log: written while deciding, read to explain, to decide again and to compare."""
