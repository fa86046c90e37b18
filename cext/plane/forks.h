/* SPDX-License-Identifier: MIT */
/*
 * forks.h: memory that forked children may see stays until they have ended. See
 * core/forks.h. The plane's lock is held in all functions.
 */
#ifndef MOOI_PLANE_FORKS_H
#define MOOI_PLANE_FORKS_H

#include "plane/plane.h"

/* Ids from here on are not of processes: they name other events of the
 * thread. */
#define MOOI_FORK_ENDED (UINT64_MAX - 1)

/* Before a fork, and after it on both sides. */
void mooi_forks_before(moo_plane *plane);
void mooi_forks_parent(moo_plane *plane);
void mooi_forks_child(moo_plane *plane);

/* 1 if a child that may live can see it. */
int mooi_forks_see_import(const moo_plane *plane,
                          const struct mooi_import *import);

/* Take over an import that is dropped; 0 if no fork sees it. */
int mooi_forks_keep(moo_plane *plane, struct mooi_import *import);

/* Let go of memory kept for children that have ended. */
void mooi_forks_reap(moo_plane *plane);
void mooi_forks_fini(moo_plane *plane);

/* Give the lease of an import back. */
void mooi_import_release(moo_plane *plane, const struct mooi_import *import);

/* The same, and free it. */
void mooi_import_end(moo_plane *plane, struct mooi_import *import);

#endif
