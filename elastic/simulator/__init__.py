# SPDX-License-Identifier: Apache-2.0
"""The policy laboratory: scenarios replayed through the code that decides in production, under a virtual clock."""
