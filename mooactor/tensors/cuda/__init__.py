# SPDX-License-Identifier: MIT
"""CUDA tensors between processes: shared on a GPU, read over a fabric, or staged.

Importing the package loads nothing; `codec` is imported with the first CUDA tensor.
"""
