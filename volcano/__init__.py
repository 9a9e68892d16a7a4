"""Volcano: manifests, a model of its behaviour, clusters, and the launcher."""
