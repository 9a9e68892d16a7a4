# SPDX-License-Identifier: Apache-2.0
"""`python -m kfp_volcano`."""

from kfp_volcano.cli import main

if __name__ == "__main__":
    main()
