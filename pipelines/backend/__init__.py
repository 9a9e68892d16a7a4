"""A KFP backend: how to reach it, and pipelines, runs and schedules there."""
