# SPDX-License-Identifier: Apache-2.0
"""The Cluster port on a Kubernetes API server.

From the wire up: `connection` (the one file that imports the client library), `api` (requests that are tried again),
`refusals` (statuses as errors), `watching`, `logs`, and `cluster`, which puts them together.
"""
