# SPDX-License-Identifier: Apache-2.0
"""The decision log: written while deciding, read to explain, to decide again and to compare."""
