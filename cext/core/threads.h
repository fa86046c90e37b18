/* SPDX-License-Identifier: MIT */
/* threads.h: threads of our own, beside the program's. */
#ifndef MOOI_THREADS_H
#define MOOI_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>

#include "mooactor.h"

/* Start one, with all signals blocked: the program's own threads take them.
 * MOO_ESYS: see errno. */
static inline moo_err mooi_thread_create(pthread_t *out, void *(*run)(void *),
                                         void *argument)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        return MOO_OK;
    errno = failed;
    return MOO_ESYS;
}

/* The number of processors that this process may use. */
static inline uint32_t mooi_processors(void)
{
    cpu_set_t allowed;

    return sched_getaffinity(0, sizeof allowed, &allowed)
               ? 1
               : (uint32_t)CPU_COUNT(&allowed);
}

#endif
