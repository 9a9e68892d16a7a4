# SPDX-License-Identifier: Apache-2.0
"""The image the steps run in on a cluster: this package and its base dependencies."""

import os

from kfp_volcano.version import __version__

STEP_IMAGE = os.environ.get("KFP_VOLCANO_STEP_IMAGE", f"kfp-volcano/steps:{__version__}")
"""Set `KFP_VOLCANO_STEP_IMAGE` when compiling, to where your registry has it. The local runner ignores it."""
