# SPDX-License-Identifier: Apache-2.0
"""The library functions behind the KFP steps and the command line: submit, follow, resize, collect, conclude."""
