# SPDX-License-Identifier: Apache-2.0
"""Training jobs of other operators to TrainingJobs, with an account of every field: what became of it, and why."""
