/* SPDX-License-Identifier: MIT */
/* zmq.c: find libzmq among the libraries that this process has loaded. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "mail/zmq.h"

struct mooi_zmq mooi_zmq;

static int complete(void *library)
{
    struct mooi_zmq found;
    struct {
        void **to;
        const char *name;
    } wanted[] = {
        {(void **)&found.msg_init, "zmq_msg_init"},
        {(void **)&found.msg_init_size, "zmq_msg_init_size"},
        {(void **)&found.msg_recv, "zmq_msg_recv"},
        {(void **)&found.msg_send, "zmq_msg_send"},
        {(void **)&found.msg_close, "zmq_msg_close"},
        {(void **)&found.msg_more, "zmq_msg_more"},
        {(void **)&found.msg_data, "zmq_msg_data"},
        {(void **)&found.msg_size, "zmq_msg_size"},
        {(void **)&found.getsockopt, "zmq_getsockopt"},
        {(void **)&found.error, "zmq_errno"},
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(*wanted[i].to = dlsym(library, wanted[i].name)))
            return 0;
    mooi_zmq = found;
    return 1;
}

/* A wheel's library is called libzmq-<hash>.so.5. If libzmq is part of pyzmq's
 * own extension, that has "zmq" in its path as well. */
static int look(struct dl_phdr_info *info, size_t size, void *unused)
{
    void *library;

    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "zmq"))
        return 0;
    library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    /* The library stays open: its functions are in use from here on. */
    return library && complete(library);
}

moo_err moo_zmq_find(void)
{
    if (mooi_zmq.msg_recv || dl_iterate_phdr(look, NULL))
        return MOO_OK;
    errno = ENOSYS;
    return MOO_ESYS;
}
