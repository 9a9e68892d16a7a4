# SPDX-License-Identifier: Apache-2.0
"""Complete pipelines, the helper they are made with, and ways to run them.

Modules here that hold pipelines are read by kfp: no `from __future__ import annotations`, no `X | None`.
"""
