/* SPDX-License-Identifier: MIT */
/* progress.h: how far the members have come, and whether they agree. */
#ifndef MOOI_PROGRESS_H
#define MOOI_PROGRESS_H

#include "collective/segment.h"

/* ---- progress.c ---- */

/* Store the counter and wake whoever sleeps for it. */
void mooi_publish(moo_group *group, enum mooi_counter which, uint64_t value);
uint64_t mooi_counter_of(moo_group *group, uint32_t rank,
                         enum mooi_counter which);
/* Wait until the counters of all other ranks have reached `target`.
 * MOOI_PENDING: the slice is over. MOO_EPEER: work was aborted. */
moo_err mooi_await(moo_group *group, moo_work *work, enum mooi_counter which,
                   uint64_t target);
moo_err mooi_await_rank(moo_group *group, moo_work *work, uint32_t rank,
                        enum mooi_counter which, uint64_t target);
/* Look for deaths, now and then; for the deadline, blaming `rank`; and for the
 * decision on `work`. MOO_EPEER: it was aborted. */
moo_err mooi_inspect(moo_group *group, moo_work *work, uint32_t rank,
                     double now);
/* The connection with `rank` failed. Abort `work` for whatever is behind it,
 * which may take half a second to find out. With this member's own rank: it
 * cannot go on by itself. Always MOO_EPEER. */
moo_err mooi_lost(moo_group *group, moo_work *work, uint32_t rank);
/* How patiently to spin and how large the buffers should be, given the
 * members and the cores. */
void mooi_tune(moo_group *group);

/* ---- agree.c ---- */

/* Wait until all ranks have begun `work`, and see that they mean the same.
 * MOO_EMISMATCH: they do not, and the outcome's text says so. */
moo_err mooi_agree(moo_group *group, moo_work *work);
/* Decide that `work` succeeds, once all that it needs is in shared memory.
 * MOO_EPEER: it was aborted before. */
moo_err mooi_conclude(moo_group *group, moo_work *work);

#endif
