# SPDX-License-Identifier: Apache-2.0
"""The policy laboratory as its users see it: policies by name, runs side by side, tables, files and the report."""
