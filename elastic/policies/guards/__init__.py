# SPDX-License-Identifier: Apache-2.0
"""What holds whatever a policy says; `guarded` puts it together, each of the others is one thing to look at. Pure."""

from kfp_volcano.elastic.policies.guards.guarded import Guarded, next_change
from kfp_volcano.elastic.policies.settings import PLACE_S

__all__ = ["PLACE_S", "Guarded", "next_change"]
