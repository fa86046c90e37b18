/* SPDX-License-Identifier: MIT */
/* calls.h: whether members' calls are alike. */
#ifndef MOOI_CALLS_H
#define MOOI_CALLS_H

#include "collective/protocol/frames.h"
#include "mooactor.h"

bool mooi_same_calls(const struct mooi_signature *a,
                     const struct mooi_signature *b);
/* Says in the outcome of `work` how the calls of two ranks differ. Returns
 * MOO_EMISMATCH. */
moo_err mooi_disagree(moo_work *work, uint32_t rank,
                      const struct mooi_signature *first, uint32_t other_rank,
                      const struct mooi_signature *other);
/* Whether the call of another host's leader is like ours; if not, as
 * mooi_disagree. */
bool mooi_is_our_call(moo_group *group, moo_work *work, uint32_t rank,
                      const struct mooi_signature *theirs);

#endif
