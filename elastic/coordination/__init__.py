# SPDX-License-Identifier: Apache-2.0
"""What a coordinator pod offers without any framework: addresses for progress and for generations. Standard library."""
