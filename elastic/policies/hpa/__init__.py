# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' horizontal pod autoscaler, exact, and the queue policy that is built of it. Pure.

Sources throughout: pkg/controller/podautoscaler of k8s.io/kubernetes v1.35.4. Its clock, its store of recommendations
and events, and its clients for metrics are arguments here; the arithmetic, integer division and saturation included,
is the same, and its own tables of tests are replayed on it.
"""
