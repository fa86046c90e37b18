/* SPDX-License-Identifier: MIT */
/*
 * thread.h: the one thread of a plane, which runs plane->run.
 */
#ifndef MOOI_THREAD_H
#define MOOI_THREAD_H

#include "plane/plane.h"

/* The event that is no process; forks.h has another. */
#define MOOI_WOKEN UINT64_MAX

/* Start it if it does not run, and wake it. Lock held. */
moo_err mooi_thread_start(moo_plane *plane);
void mooi_thread_wake(moo_plane *plane);
/* Lock not held. */
void mooi_thread_stop(moo_plane *plane);

#endif
