# SPDX-License-Identifier: Apache-2.0
"""A short elastic run of a training script, on an embedded cluster of its own: a resize, a kill, a restart.

`live` and `restart` play the scenario of their strategy on a `stage`; scripts run under `paced`, which stops them at
the steps where something is to happen; what came out is a `verdict`, in words.
"""
