/* SPDX-License-Identifier: MIT */
/*
 * pace.h: how far behind its work the machine is. A test's bound on time is meant
 * for a machine that runs what is ready to run. On one that has more to do, what a
 * metronome loses there is allowed on top. Included after the harness, for CHECK.
 */
#ifndef PACE_H
#define PACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "core/clock.h"

/* A beat is some sleep and then some work: who sleeps is often run before who works. */
#define PACE_SLEEP_NS ((uint64_t)10000000)
#define PACE_WORK_NS ((uint64_t)2000000)

static struct {
    pthread_t thread;
    atomic_int over;
    _Atomic uint64_t beat_ns, lost_ns; /* when a beat began; by those before */
    uint64_t began_ns;
} pace;

static inline uint64_t pace_late_ns(void)
{
    uint64_t due_ns = pace.beat_ns + PACE_SLEEP_NS + PACE_WORK_NS;
    uint64_t now = mooi_now_ns();

    return now < due_ns ? 0 : now - due_ns;
}

static inline uint64_t pace_lost_ns(void)
{
    return pace.lost_ns + pace_late_ns();
}

static inline uint64_t pace_worked_ns(void)
{
    struct timespec worked;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &worked);
    return (uint64_t)worked.tv_sec * 1000000000u + (uint64_t)worked.tv_nsec;
}

static inline void *pace_beat(void *unused)
{
    while (!pace.over) {
        uint64_t worked = pace_worked_ns();

        usleep(PACE_SLEEP_NS / 1000);
        while (pace_worked_ns() - worked < PACE_WORK_NS)
            ;
        pace.lost_ns += pace_late_ns();
        pace.beat_ns = mooi_now_ns();
    }
    return unused;
}

/* From now on it is measured; one measurement at a time. */
static inline void pace_begin(void)
{
    pace.over = 0;
    pace.lost_ns = 0;
    pace.began_ns = pace.beat_ns = mooi_now_ns();
    CHECK(!pthread_create(&pace.thread, NULL, pace_beat, NULL));
}

/* The seconds since it began, less those that were lost. */
static inline double pace_so_far(void)
{
    uint64_t lost_ns = pace_lost_ns(), took_ns = mooi_now_ns() - pace.began_ns;

    return took_ns < lost_ns ? 0 : (double)(took_ns - lost_ns) / 1e9;
}

/* The same, at its end. */
static inline double pace_end(void)
{
    double took = pace_so_far();

    pace.over = 1;
    CHECK(!pthread_join(pace.thread, NULL));
    return took;
}

#endif
