/* SPDX-License-Identifier: MIT */
/* pages.h: memfds, their mappings, and the written pages of a mapping. */
#ifndef MOOI_PAGES_H
#define MOOI_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"

/* The size of a page; `bytes` rounded up to whole pages. */
size_t mooi_page(void);
size_t mooi_round_up(size_t bytes);

/* A memfd of that size that can neither shrink nor grow any more, closed on
 * exec. MOO_ESYS with errno, ENOSYS where there is no memfd. */
moo_err mooi_memfd(const char *name, size_t bytes, int *fd);

/* 1 if `fd` is a memfd of at least `bytes` that cannot shrink: then its
 * creator cannot make a mapping of it raise SIGBUS. */
int mooi_memfd_has(int fd, size_t bytes);

enum mooi_mapping { MOOI_SHARED, MOOI_PRIVATE };

/* Map fd[offset, offset + bytes) readable and writable; at `at` if that is not
 * NULL, in place of the mapping there. Returns NULL with errno on failure. */
void *mooi_map(void *at, int fd, size_t offset, size_t bytes,
               enum mooi_mapping how);

/* Map the pages of [at, at + bytes) that exist, many at a time: 4 ms for 64 MB
 * where as many single faults cost 15. A hint; fails silently. */
void mooi_pages_populate(void *at, size_t bytes);

/*
 * Pages of a private mapping that were written are copies, no longer the shared
 * ones. They are found by PAGEMAP_SCAN (Linux 6.7), else by reading
 * /proc/self/pagemap; `pagemap` is that file, or -1 where it cannot be opened.
 */
int mooi_pagemap_open(void);

/* 1 if a page of [at, at + bytes) was written, or if that is not known. */
int mooi_pages_dirty(int pagemap, const void *at, size_t bytes);

/* Forget the copies in the whole pages [at, at + bytes): it shows the shared
 * memory again. */
void mooi_pages_clean(int pagemap, void *at, size_t bytes);

#endif
