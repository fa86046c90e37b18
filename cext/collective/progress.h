/* SPDX-License-Identifier: MIT */
/* progress.h: the waits for other members, and the check of their calls. */
#ifndef MOOI_PROGRESS_H
#define MOOI_PROGRESS_H

#include "collective/agreement.h"

/* ---- progress.c ---- */

/* Wait until the counters of all other members of this host have reached
 * `target`. MOOI_PENDING: the slice is over. MOO_EPEER: work was aborted.
 * MOO_EMISMATCH: it was decided that the calls of hosts differ. */
moo_err mooi_await(moo_group *group, moo_work *work, enum mooi_counter which,
                   uint64_t target);
moo_err mooi_await_rank(moo_group *group, moo_work *work, uint32_t rank,
                        enum mooi_counter which, uint64_t target);
/* Check for the deadline, which blames `rank`, and for the decision on `work`.
 * MOO_EPEER: it was aborted. */
moo_err mooi_inspect(moo_group *group, moo_work *work, uint32_t rank,
                     double now);
/* The connection with `rank` failed. Find the cause, which may take half a
 * second, or complain, and wait as long for the decision. With this member's own
 * rank: it cannot go on by itself. MOO_EPEER: `work` was aborted. MOOI_PENDING:
 * not yet; call again. */
moo_err mooi_lost(moo_group *group, moo_work *work, uint32_t rank);
/* The same at once, for that reason. MOO_OK: it was committed before. */
moo_err mooi_give_up(moo_group *group, moo_work *work, enum mooi_why why,
                     uint32_t rank);
/* How long to spin and how large the buffers are, given the members and the
 * cores. */
void mooi_tune(moo_group *group);

/* ---- agree.c ---- */

/* Wait until all members of this host have begun `work`, and compare their
 * calls. MOO_EMISMATCH: they differ, and the outcome's text says how. In a view
 * of several hosts it is not concluded then. */
moo_err mooi_agree(moo_group *group, moo_work *work);
/* Commit `work`, once all the bytes that it needs are in the memory of this
 * host; `succeeds`: the calls agree. MOO_EPEER: it was aborted before.
 * MOO_EMISMATCH: others know that the calls differ. MOOI_PENDING: the slice is
 * over; call again. */
moo_err mooi_conclude(moo_group *group, moo_work *work, bool succeeds);

#endif
