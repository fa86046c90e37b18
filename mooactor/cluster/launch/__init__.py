# SPDX-License-Identifier: MIT
"""Launchers: they start the broker, the hosts and the program, and end them together.

Read `launch` first. A program on another host is started by `starter`, which travels
there over ssh's stdin. Inside srun, mpirun, torchrun or Kubernetes, `ranks` finds the
peers in the environment, and `job` does a rank's part.
"""
