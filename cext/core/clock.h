/* SPDX-License-Identifier: MIT */
/*
 * clock.h: the one clock of the C code, CLOCK_MONOTONIC. Waits on conditions
 * use it too, so a change of the time of day ends none of them early.
 */
#ifndef MOOI_CLOCK_H
#define MOOI_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

uint64_t mooi_now_ns(void);

/* The same, in seconds. */
double mooi_now(void);

/* A moment of that clock, as pthread_cond_timedwait takes it. */
struct timespec mooi_timespec(uint64_t ns);

/* A condition whose waits end by this clock. */
void mooi_cond_init(pthread_cond_t *condition);

#endif
