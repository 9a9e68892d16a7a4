# SPDX-License-Identifier: Apache-2.0
"""A search over a spec's fields: what is varied (`space`), a trial's Job (`trial`), what came of each (`record`).

`tuning` gives the trials to Ray Tune, which decides how many are under way and which are given up; it is the only
module that knows Tune, and needs the extra `tune`.
"""
