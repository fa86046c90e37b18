/* SPDX-License-Identifier: MIT */
/* map.c: the size of a group's segment, and its mapping. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "collective/buffers.h"
#include "collective/segment/segment.h"

uint64_t moo_group_segment_bytes(void)
{
    return HEADER_BYTES + (uint64_t)MOOI_TEAM_MAX * REGION_BYTES;
}

moo_err mooi_segment_map(int fd, struct mooi_segment **out)
{
    size_t bytes = moo_group_segment_bytes();
    struct stat status;
    void *start;
    if (fstat(fd, &status))
        return MOO_ESYS;
    if ((uint64_t)status.st_size < bytes)
        return MOO_EINVAL;
    start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (start == MAP_FAILED)
        return MOO_ESYS;
    *out = start;
    return MOO_OK;
}

void mooi_segment_unmap(struct mooi_segment *segment)
{
    munmap(segment, moo_group_segment_bytes());
}
