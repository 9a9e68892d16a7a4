# SPDX-License-Identifier: Apache-2.0
"""Volcano: manifests, a model of its behaviour, clusters, and the launcher."""
