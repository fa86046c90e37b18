/* SPDX-License-Identifier: MIT */
/*
 * process.c: futexes, and processes that a reused pid cannot stand for.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collective/process.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* the same on every architecture */
#endif

bool mooi_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    if (seconds <= 0)
        return true;
    struct timespec span = {.tv_sec = (time_t)seconds};
    span.tv_nsec = (long)(1e9 * (seconds - (double)span.tv_sec));
    long rc = syscall(SYS_futex, word, FUTEX_WAIT, value, &span, NULL, 0);
    return !(rc < 0 && errno == EINTR);
}

void mooi_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

uint32_t mooi_start_time(int32_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    /* Field 22; the name, field 2, may hold spaces and brackets. */
    char *next = strrchr(text, ')');
    for (int field = 2; next && field < 22; field++)
        next = strchr(next + 1, ' ');
    return next ? (uint32_t)strtoull(next, NULL, 10) : 0;
}

int mooi_watch_open(int32_t pid, uint32_t start)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), reason;
    bool dead;
    if (pidfd < 0)
        return errno == ESRCH ? -1 : -2;
    /* Checked after the open: the pid cannot have been reused in between. */
    uint32_t found = mooi_start_time(pid);
    reason = errno;
    dead = mooi_watch_dead(pidfd) || (found && found != start);
    if (!dead && found)
        return pidfd;
    close(pidfd);
    errno = reason; /* it lives, and the system told no more of it */
    return dead ? -1 : -2;
}

bool mooi_watch_dead(int pidfd)
{
    struct pollfd entry = {.fd = pidfd, .events = POLLIN};
    return poll(&entry, 1, 0) > 0; /* -2 is never ready */
}
