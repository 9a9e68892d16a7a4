# SPDX-License-Identifier: Apache-2.0
"""What Volcano would do: admission, job controller and scheduler, as functions of objects and time."""
