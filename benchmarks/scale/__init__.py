# SPDX-License-Identifier: Apache-2.0
"""What the benchmark `autoscaler` runs on: a generated cluster, served to the process that is measured."""
