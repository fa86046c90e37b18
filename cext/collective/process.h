/* SPDX-License-Identifier: MIT */
/* process.h: futexes, and processes that may end. */
#ifndef MOOI_PROCESS_H
#define MOOI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleep while *word == value, at most `seconds`. false: a signal came. */
bool mooi_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds);
void mooi_futex_wake(_Atomic uint32_t *word);
/* When process `pid` was started, in clock ticks since boot; 0: there is none, or
 * the system does not tell (see errno). */
uint32_t mooi_start_time(int32_t pid);
/* A pidfd for that very process. -1: it is dead. -2: see errno. */
int mooi_watch_open(int32_t pid, uint32_t start);
bool mooi_watch_dead(int pidfd);

#endif
