# SPDX-License-Identifier: Apache-2.0
"""The cluster as values: what is watched, kept up to date change by change, and made into snapshots of queues."""
