# SPDX-License-Identifier: Apache-2.0
"""Values from outside of the cluster's objects: from a Prometheus, or from exporters of GPUs' measurements."""
