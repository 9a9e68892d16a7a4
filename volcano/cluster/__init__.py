# SPDX-License-Identifier: Apache-2.0
"""The Cluster port and what implements it."""
