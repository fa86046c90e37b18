/* SPDX-License-Identifier: MIT */
/* view.h: the view that a member works in, and its watch over the others. */
#ifndef MOOI_VIEW_H
#define MOOI_VIEW_H

#include "collective/agreement.h"

/* ---- view.c ---- */

/* Take over the view of the next operation, if it differs from the group's.
 * MOOI_PENDING: this member is in none. */
moo_err mooi_adopt(moo_group *group);
/* Wait, within the slice, until this member is in a view of enough members. If
 * there are too few at `deadline`, operation `seq` is aborted. MOO_EPEER:
 * operation `seq`, if not 0, was aborted before it began here. */
moo_err mooi_wait_formed(moo_group *group, uint64_t seq, double deadline);

/* ---- watch.c ---- */

/* Watch all others of the view from now on, and nobody else. `members` by
 * rank. */
void mooi_watch_members(moo_group *group, const struct mooi_member *members);
/* The rank of a member whose process is dead, or -1. */
int mooi_find_dead(moo_group *group);
/* Let go of what mooi_watch_members opened. */
void mooi_unwatch(moo_group *group);

#endif
