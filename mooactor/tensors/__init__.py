# SPDX-License-Identifier: MIT
"""The Python face of the C data plane: arrays and tensors between processes.

Only this package imports the compiled extension.
"""
