# SPDX-License-Identifier: Apache-2.0
"""The version, apart from the façade so that every layer may read it."""

__version__ = "0.1.0"
