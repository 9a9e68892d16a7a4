# SPDX-License-Identifier: Apache-2.0
"""The first process of a pod with strategy `restart`: it starts the command anew for each generation.

::

    python -m kfp_volcano.elastic.agent -- COMMAND…

Standard library only: of an image it asks for Python and this package, not for PyTorch.
"""
