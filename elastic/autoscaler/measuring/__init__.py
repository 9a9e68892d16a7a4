"""Values from outside of the cluster's objects: from a Prometheus, or from exporters of GPUs' measurements."""
