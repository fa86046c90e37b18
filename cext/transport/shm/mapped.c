/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/bits.h"
#include "core/pages.h"
#include "transport/shm/shm.h"

static moo_err open_window(struct mooi_local *local, struct mooi_mapped *mapped,
                           enum mooi_mapping how)
{
    struct mooi_window *window = &mapped->window[how];
    struct mooi_region region = {.kind = MOOI_WINDOW, .of = window};
    size_t pages = mapped->bytes / mooi_page();
    moo_err err = MOO_ENOMEM;

    window->first = calloc(pages, sizeof *window->first);
    window->busy = calloc(MOOI_BIT_WORDS(pages), sizeof *window->busy);
    window->base = mooi_map(NULL, mapped->fd, 0, mapped->bytes, how);
    if (window->first && window->busy && window->base) {
        region.start = (uintptr_t)window->base;
        region.end = region.start + mapped->bytes;
        err = mooi_region_add(local->regions, &region);
    }
    if (err == MOO_OK)
        return MOO_OK;
    if (window->base)
        munmap(window->base, mapped->bytes);
    free(window->first);
    free(window->busy);
    memset(window, 0, sizeof *window);
    return err;
}

static size_t first_page(const struct mooi_import *import)
{
    return import->offset / mooi_page();
}

static size_t page_count(const struct mooi_import *import)
{
    size_t end = mooi_round_up(import->offset + import->bytes);

    return end / mooi_page() - first_page(import);
}

/* Two imports of the same pages must not see each other's writes: the second
 * gets a mapping of its own. */
static moo_err place_alone(struct mooi_local *local, struct mooi_mapped *mapped,
                           struct mooi_import *import)
{
    size_t start = first_page(import) * mooi_page();
    size_t bytes = page_count(import) * mooi_page();
    char *base = mooi_map(NULL, mapped->fd, start, bytes,
                          import->shared ? MOOI_SHARED : MOOI_PRIVATE);
    struct mooi_region region = {.kind = MOOI_ALONE, .of = import};
    moo_err err;

    if (!base)
        return errno == ENOMEM ? MOO_ENOMEM : MOO_ESYS;
    region.start = (uintptr_t)base;
    region.end = region.start + bytes;
    err = mooi_region_add(local->regions, &region);
    if (err != MOO_OK) {
        munmap(base, bytes);
        return err;
    }
    import->at = base + (import->offset - start);
    import->alone = 1;
    return MOO_OK;
}

moo_err mooi_mapped_place(struct mooi_local *local, struct mooi_mapped *mapped,
                          struct mooi_import *import)
{
    enum mooi_mapping how = import->shared ? MOOI_SHARED : MOOI_PRIVATE;
    struct mooi_window *window = &mapped->window[how];
    size_t page = first_page(import), pages = page_count(import);

    import->mapped = mapped;
    if (!window->base) {
        moo_err err = open_window(local, mapped, how);
        if (err != MOO_OK)
            return err;
    }
    if (mooi_bits_any(window->busy, page, pages))
        return place_alone(local, mapped, import);
    mooi_bits_set(window->busy, page, pages);
    window->first[page] = import;
    import->at = window->base + import->offset;
    import->alone = 0;
    return MOO_OK;
}

void mooi_mapped_remove(struct mooi_local *local, struct mooi_import *import)
{
    struct mooi_mapped *mapped = import->mapped;
    size_t page = first_page(import), pages = page_count(import);
    size_t start = page * mooi_page();
    char *base = import->at - (import->offset - start);
    struct mooi_window *window;

    if (import->alone) {
        mooi_region_remove(local->regions, base);
        munmap(base, pages * mooi_page());
        return;
    }
    window = &mapped->window[import->shared ? MOOI_SHARED : MOOI_PRIVATE];
    if (!import->shared)
        mooi_pages_clean(local->pagemap, base, pages * mooi_page());
    mooi_bits_clear(window->busy, page, pages);
    window->first[page] = NULL;
}

struct mooi_import *mooi_mapped_find(const struct mooi_window *window,
                                     const void *at)
{
    size_t page = (size_t)((const char *)at - window->base) / mooi_page();

    /* Busy pages belong to the nearest import that starts at or before. */
    if (!mooi_bits_any(window->busy, page, 1))
        return NULL;
    while (!window->first[page])
        page--;
    return window->first[page];
}

struct mooi_import *mooi_import_at(const struct mooi_region *region,
                                   const void *data, size_t bytes)
{
    struct mooi_import *import = region->kind == MOOI_ALONE
                                     ? region->of
                                     : mooi_mapped_find(region->of, data);

    if (!import || (const char *)data < import->at ||
        (const char *)data + bytes > import->at + import->bytes)
        return NULL;
    return import;
}

void mooi_mapped_fini(struct mooi_local *local, struct mooi_mapped *mapped)
{
    for (int how = 0; how < 2; how++) {
        struct mooi_window *window = &mapped->window[how];
        if (!window->base)
            continue;
        mooi_region_remove(local->regions, window->base);
        munmap(window->base, mapped->bytes);
        free(window->first);
        free(window->busy);
    }
    if (mapped->fd >= 0)
        close(mapped->fd);
    memset(mapped, 0, sizeof *mapped);
    mapped->fd = -1;
}
