/* SPDX-License-Identifier: MIT */
#include "core/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

size_t mooi_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t mooi_round_up(size_t bytes)
{
    return (bytes + mooi_page() - 1) & ~(mooi_page() - 1);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

moo_err mooi_memfd(const char *name, size_t bytes, int *fd)
{
    int created = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (created < 0)
        return MOO_ESYS;
    if (ftruncate(created, (off_t)bytes) < 0 ||
        fcntl(created, F_ADD_SEALS, SEALS) < 0) {
        int reason = errno;
        close(created);
        errno = reason;
        return MOO_ESYS;
    }
    *fd = created;
    return MOO_OK;
}

int mooi_memfd_has(int fd, size_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &status) == 0 &&
           (uint64_t)status.st_size >= bytes;
}

void *mooi_map(void *at, int fd, size_t offset, size_t bytes,
               enum mooi_mapping how)
{
    int flags = how == MOOI_SHARED ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE;
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE,
                        flags | (at ? MAP_FIXED : 0), fd, (off_t)offset);

    return mapped == MAP_FAILED ? NULL : mapped;
}

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

void mooi_pages_populate(void *at, size_t bytes)
{
    /* Reading suffices: shared pages of a memfd are mapped writable at once. */
    madvise(at, bytes, MADV_POPULATE_READ);
}

int mooi_pagemap_open(void)
{
    return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

/* From linux/fs.h of 6.7 on; older headers lack it. */
struct page_region {
    uint64_t start, end, categories;
};

struct scan_request {
    uint64_t size, flags, start, end, walk_end, regions, regions_count;
    uint64_t max_pages, category_inverted, category_mask;
    uint64_t category_anyof_mask, return_mask;
};

#define SCAN _IOWR('f', 16, struct scan_request)
#define IS_FILE (1u << 2)
#define IS_PRESENT (1u << 3)
#define IS_SWAPPED (1u << 4)
#define REGIONS 64

/* Fill `found` with stretches of copied pages in [*start, end) and move *start
 * behind the pages looked at. Returns their number, or -1: no such ioctl
 * here. */
static int scan(int pagemap, uint64_t *start, uint64_t end,
                struct page_region *found, uint64_t max_pages)
{
    /* Present or swapped, and not a page of the file. */
    struct scan_request request = {
        .size = sizeof request,
        .start = *start,
        .end = end,
        .regions = (uintptr_t)found,
        .regions_count = REGIONS,
        .max_pages = max_pages,
        .category_inverted = IS_FILE,
        .category_mask = IS_FILE,
        .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
        .return_mask = IS_PRESENT,
    };
    int count = ioctl(pagemap, SCAN, &request);

    if (count >= 0)
        *start = request.walk_end;
    return count;
}

/* The same by reading 8 bytes a page: bit 63 present, 62 swapped, 61 file. */
static int read_entries(int pagemap, uint64_t *start, uint64_t end,
                        struct page_region *found)
{
    uint64_t entries[512], page = mooi_page();
    size_t want = (end - *start) / page;
    ssize_t got;
    int count = 0;

    if (want > 512)
        want = 512;
    got = pread(pagemap, entries, want * 8, (off_t)(*start / page * 8));
    if (got < 8)
        return -1;
    for (size_t i = 0; i < (size_t)got / 8; i++, *start += page) {
        int present = entries[i] >> 63 & 1, swapped = entries[i] >> 62 & 1;
        if (!swapped && !(present && !(entries[i] >> 61 & 1)))
            continue;
        if (count && found[count - 1].end == *start)
            found[count - 1].end += page;
        else if (count == REGIONS)
            return count;
        else
            found[count++] = (struct page_region){*start, *start + page, 0};
    }
    return count;
}

static int find_copies(int pagemap, uint64_t *start, uint64_t end,
                       struct page_region *found, uint64_t max_pages)
{
    int count = scan(pagemap, start, end, found, max_pages);

    return count >= 0 ? count : read_entries(pagemap, start, end, found);
}

int mooi_pages_dirty(int pagemap, const void *at, size_t bytes)
{
    uint64_t page = mooi_page(), start = (uintptr_t)at & ~(page - 1);
    uint64_t end = mooi_round_up((uintptr_t)at + bytes);
    struct page_region found[REGIONS];

    while (start < end)
        if (find_copies(pagemap, &start, end, found, 1) != 0)
            return 1;
    return 0;
}

void mooi_pages_clean(int pagemap, void *at, size_t bytes)
{
    uint64_t start = (uintptr_t)at, end = start + bytes;
    struct page_region found[REGIONS];

    while (start < end) {
        int count = find_copies(pagemap, &start, end, found, 0);
        if (count < 0) {
            madvise((void *)(uintptr_t)start, end - start, MADV_DONTNEED);
            return;
        }
        for (int i = 0; i < count; i++)
            madvise((void *)(uintptr_t)found[i].start,
                    found[i].end - found[i].start, MADV_DONTNEED);
    }
}
