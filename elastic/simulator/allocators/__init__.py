"""Schedulers that place whole jobs themselves, at intervals: those published with Pollux, and one like Sia."""
