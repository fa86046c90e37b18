# SPDX-License-Identifier: MIT
"""The rows of ``make bench-all`` that only those need who work on mooactor.

The modules measure one group each, as those of `mooactor.cli.bench` do: between hosts,
at brokers, on bare data planes, of deaths, and what learning needs.
"""
