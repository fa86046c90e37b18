/* SPDX-License-Identifier: MIT */
/*
 * zmq.h: the functions of libzmq that mail needs, as pyzmq has loaded them.
 *
 * There is no libzmq to link with: wheels of pyzmq carry a copy of their own,
 * and a socket may only be used by the library that made it.
 */
#ifndef MOOI_ZMQ_H
#define MOOI_ZMQ_H

#include <stddef.h>

#include "mooactor.h"

/* As in zmq.h of libzmq 4; these are part of its binary interface. */
typedef struct {
    _Alignas(void *) unsigned char opaque[64];
} mooi_zmq_msg;

#define MOOI_ZMQ_DONTWAIT 1
#define MOOI_ZMQ_SNDMORE 2
#define MOOI_ZMQ_FD 14

struct mooi_zmq {
    int (*msg_init)(mooi_zmq_msg *);
    int (*msg_init_size)(mooi_zmq_msg *, size_t);
    int (*msg_recv)(mooi_zmq_msg *, void *socket, int flags);
    int (*msg_send)(mooi_zmq_msg *, void *socket, int flags);
    int (*msg_close)(mooi_zmq_msg *);
    int (*msg_more)(const mooi_zmq_msg *);
    void *(*msg_data)(mooi_zmq_msg *);
    size_t (*msg_size)(const mooi_zmq_msg *);
    int (*getsockopt)(void *socket, int option, void *value, size_t *bytes);
    int (*error)(void); /* the last failure by zmq_errno, in libzmq's words */
};

/* Filled once, by moo_zmq_find; tests put their own functions there. */
extern struct mooi_zmq mooi_zmq;

#endif
