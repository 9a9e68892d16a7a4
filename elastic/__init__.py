"""Elasticity: policies, the autoscaler, the training runtime, and the arithmetic they share."""
