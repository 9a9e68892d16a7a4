# SPDX-License-Identifier: Apache-2.0
"""A KFP backend: how to reach it, and pipelines, runs and schedules there."""
