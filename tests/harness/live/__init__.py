# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes: a coordinator and workers that train, come, go, are killed, stopped and cut off."""
