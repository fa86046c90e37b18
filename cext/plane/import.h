/* SPDX-License-Identifier: MIT */
/*
 * import.h: fetches that begin elsewhere than in import.c.
 */
#ifndef MOOI_IMPORT_H
#define MOOI_IMPORT_H

#include "plane/fetch.h"

/* Begin it, from another host; on an error free it. Lock not held. */
moo_err mooi_fetch_launch(struct moo_fetch *fetch, int timeout_ms);

#endif
