# SPDX-License-Identifier: Apache-2.0
"""What a training script says about itself: mistakes that a change of size brings to light, found without running it.

`sources` reads a script with its local imports, `flow` follows values through it (which names hold a rank, a number of
workers, a sharded model), the modules of rules look for one kind of mistake each, and `checker` puts them together.
Nothing of a script is imported or executed.
"""
