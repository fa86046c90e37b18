/* SPDX-License-Identifier: MIT */
/* loop.h: what the thread of a plane does; see thread.h. */
#ifndef MOOI_LOOP_H
#define MOOI_LOOP_H

/* Serve the peers of this host, and keep house, until the plane is closed. */
void *mooi_loop_run(void *plane);

#endif
