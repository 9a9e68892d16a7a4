# SPDX-License-Identifier: Apache-2.0
"""Jobs by their measured profiles: how fast a step is at a placement and a batch, and what a batch is worth."""
