# SPDX-License-Identifier: Apache-2.0
"""The policy `goodput`: sizes for a whole queue at once, by what each Job would make of them. Pure."""
