# SPDX-License-Identifier: Apache-2.0
"""From traces, dumps and logs of real clusters to scenarios: one module for each format."""
