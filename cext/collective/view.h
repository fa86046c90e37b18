/* SPDX-License-Identifier: MIT */
/* view.h: the view that a member works in. */
#ifndef MOOI_VIEW_H
#define MOOI_VIEW_H

#include "collective/agreement.h"

/* Take over the view of the next operation, if it differs from the group's.
 * MOOI_PENDING: this member is in none. MOO_ECLOSED: it was expelled. */
moo_err mooi_adopt(moo_group *group);
/* Wait, within the slice, until this member is in a view of enough members. If
 * there are too few at `deadline`, operation `seq` is complained of.
 * MOO_EPEER: operation `seq`, if not 0, was aborted before it began here. Of a
 * newcomer also: the errors of mooi_refusal. MOO_ECLOSED: as mooi_adopt. */
moo_err mooi_wait_formed(moo_group *group, uint64_t seq, double deadline);
/* Its members in rank order. By the runner, or with the mutex held. */
void mooi_describe_members(const moo_group *group, moo_member *members);

#endif
