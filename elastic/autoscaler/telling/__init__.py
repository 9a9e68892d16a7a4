# SPDX-License-Identifier: Apache-2.0
"""What is told of an autoscaler's work: to metrics, Events, logs and the timeline of a queue."""
