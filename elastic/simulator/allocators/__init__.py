# SPDX-License-Identifier: Apache-2.0
"""Schedulers that place whole jobs themselves, each interval anew: the published ones, and one like Sia."""
