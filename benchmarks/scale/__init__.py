"""What the benchmark `autoscaler` runs on: a generated cluster, served to the process that is measured."""
