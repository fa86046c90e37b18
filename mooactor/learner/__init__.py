# SPDX-License-Identifier: MIT
"""Learner groups: processes that average gradients, and outlive each other.

`LearnerGroup` is the membership, `Work` an operation under way. The bytes move in
C, through memory that all members share (`mooactor.tensors.collective`).
"""

from mooactor.learner.group import LearnerGroup, ddp_hook
from mooactor.learner.work import Member, Work

__all__ = ["LearnerGroup", "Member", "Work", "ddp_hook"]
