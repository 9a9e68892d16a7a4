# SPDX-License-Identifier: Apache-2.0
"""Elasticity: policies, the autoscaler, the training runtime, and the arithmetic they share."""
