"""The Cluster port and what implements it."""
