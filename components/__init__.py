# SPDX-License-Identifier: Apache-2.0
"""The KFP steps: thin bodies over `kfp_volcano.volcano.launcher.steps`.

Modules here are read by kfp, which needs annotations as objects: no `from __future__ import annotations`, no
`X | None`.
"""
