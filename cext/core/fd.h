/* SPDX-License-Identifier: MIT */
#ifndef MOOI_FD_H
#define MOOI_FD_H

#include <unistd.h>

/* Close a descriptor that may be closed: -1. */
static inline void mooi_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#endif
