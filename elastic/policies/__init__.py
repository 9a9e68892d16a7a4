# SPDX-License-Identifier: Apache-2.0
"""Decisions: from a snapshot of a queue to the number of workers each elastic Job should have. Pure."""
