# SPDX-License-Identifier: Apache-2.0
"""What is said: the types of specs and records, and the JSON Schemas they are checked with. Pure."""
