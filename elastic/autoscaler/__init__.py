# SPDX-License-Identifier: Apache-2.0
"""Observe a queue, decide, ask for resizes and carry them out; its programs and actors."""
