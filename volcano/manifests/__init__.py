# SPDX-License-Identifier: Apache-2.0
"""From a TrainingJob to the objects Volcano takes, and from those objects back to what they say. Pure."""
