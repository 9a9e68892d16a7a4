# SPDX-License-Identifier: Apache-2.0
"""Pools of shared GPUs: how they stand, and which nodes move from one to another. Pure."""
