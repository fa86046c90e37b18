/* SPDX-License-Identifier: MIT */
/*
 * internal.h: shared by the files of the fabric.
 *
 * All reads, peers and pieces are the thread's alone. Others hand it their
 * requests in the `inbox`, guarded by `lock`, which is never held for long.
 * Objects of libfabric are used in its thread-safe mode, so a region is
 * registered in the caller's thread.
 */
#ifndef MOOI_FABRIC_INTERNAL_H
#define MOOI_FABRIC_INTERNAL_H

#include "transport/ofi/fabric.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/types.h>

/* The largest piece of a read: large enough for every network's full speed,
 * small enough that another read does not wait long. */
#define MOOI_FABRIC_PIECE ((size_t)1 << 20)
/* Limits of pieces under way: of all reads together, and from one peer. */
#define MOOI_FABRIC_PIECES 64
#define MOOI_FABRIC_PEER_PIECES 8
/* An ending read whose pieces the device has ends by itself within this time,
 * or they are taken away from the device. */
#define MOOI_FABRIC_GRACE_NS ((uint64_t)300 * 1000000u)

/* ---- library.c ---- */

/* libfabric's exported functions; all others are inline in its headers. */
struct mooi_libfabric {
    int (*getinfo)(uint32_t version, const char *node, const char *service,
                   uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info); /* NULL: empty */
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                  void *context);
    const char *(*strerror)(int err);
    uint32_t (*version)(void);
    char path[256];
};

/* The library, loaded once and kept. MOO_EUNREACHABLE: it cannot be loaded;
 * why[0, room) says why. The next call tries again. */
moo_err mooi_libfabric(const struct mooi_libfabric **out, char *why,
                       size_t room);

/* ---- choose.c ---- */

/* The fabric to open; the caller's, to be freed by `freeinfo`. It has the
 * capability FI_HMEM if it is for memory of devices as well. */
moo_err mooi_fabric_choose(const struct mooi_libfabric *library,
                           const struct mooi_fabric_options *options,
                           struct fi_info **out, char *why, size_t room);

/* ---- port.c ---- */

/* An endpoint with its own objects. */
struct mooi_fabric_port {
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int fd; /* readable when there is work; -1: not known */
};

/* On an error of libfabric, which is returned, *port is all zero.
 * -FI_EADDRINUSE: all ports that its socket may have are taken. */
int mooi_fabric_port_open(struct mooi_fabric *fabric,
                          struct mooi_fabric_port *port);

/* After this none of its operations touches memory. Does nothing to an
 * all-zero port. */
void mooi_fabric_port_close(struct mooi_fabric_port *port);

/* ---- the thread's objects ---- */

/* A thread that waits for the end of a read. */
struct mooi_fabric_stop {
    struct mooi_fabric_stop *next;
    const void *cookie;
    moo_err result;
    int done;
};

struct mooi_fabric_read {
    struct mooi_fabric_read *next, *previous;
    struct mooi_fabric_peer *peer;
    struct mooi_fabric_want want;
    size_t posted;    /* bytes that have a piece */
    size_t here;      /* bytes received */
    uint32_t flying;  /* pieces in the device's hands */
    uint32_t waiting; /* pieces to be posted again */
    int suspect;      /* so was the peer when it began */
    uint64_t heard_ns;
    moo_err result;
    int reason;            /* with MOO_ESYS: the errno */
    int doomed;            /* it ends once none of its pieces is flying */
    uint64_t patient_until_ns; /* if so: when it is taken from the device */
    struct mooi_fabric_stop *stop;
};

/* A part of a read. libfabric owns `context` while it is flying. */
struct mooi_fabric_piece {
    struct fi_context2 context; /* first: completions name it */
    struct mooi_fabric_piece *next;
    struct mooi_fabric_read *read;
    size_t offset, bytes;
    int flying;
};

struct mooi_fabric_peer {
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *next; /* of all gone peers */
    uint32_t reads, flying;
    int gone;      /* to be freed after its last read */
    int cut;       /* we hung up: its pieces come back, to be posted again */
    int suspect;   /* its last piece failed: the connection may be broken, and
                      libfabric may not know it yet */
    uint64_t failed_ns; /* since when, if so */
    uint64_t full; /* the turn in which it was full */
    uint64_t not_before_ns; /* it is left alone until then */
    uint64_t port; /* of which `address` is; 0: none */
    fi_addr_t address;
    uint64_t answered_port; /* the port by which it answered last; 0: none */
    size_t name_bytes;
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    char why[MOOI_FABRIC_WHY_BYTES]; /* guarded by the lock */
};

struct mooi_fabric_region {
    struct mooi_fabric *fabric;
    struct mooi_fabric_region *next, *previous;
    struct fid_mr *mr;
    char *base;
    size_t bytes;
};

struct mooi_fabric {
    const struct mooi_libfabric *library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct mooi_fabric_port serving;
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    size_t name_bytes;
    uint64_t mr_mode;
    int devices;
    int over_sockets; /* so connections are ours to break: see cut.c */
    uint32_t first_port, last_port; /* for its sockets; 0: the system chooses */
    int rough; /* tests set it: close the endpoint at once, as the last resort */

    /* the thread's */
    struct mooi_fabric_port reading; /* `ep` NULL: to be opened */
    uint64_t port, turn;             /* count them; 0 is none */
    size_t piece_bytes;
    struct mooi_fabric_piece piece[MOOI_FABRIC_PIECES];
    struct mooi_fabric_piece *idle, *again;
    struct mooi_fabric_read ring; /* the first has its turn */
    struct mooi_fabric_read ended; /* to be called back */
    struct mooi_fabric_peer *gone;
    uint64_t now_ns; /* of this turn */
    uint64_t spin_ns, acted_ns;
    int unready;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped; /* a mooi_fabric_stop is done */
    int wake;               /* an eventfd */
    int knocked; /* something is in the inbox */
    int asleep, closing, closed;
    struct {
        struct mooi_fabric_read reads;
        struct mooi_fabric_stop *stops;
        struct mooi_fabric_peer *gone;
    } inbox;
    struct mooi_fabric_region regions; /* a ring */

    _Atomic uint64_t reads, asked, received, cuts;
};

/* ---- read.c: on the thread ---- */

/* Post all possible pieces. Returns 1 if one could not be posted yet, though a
 * piece was free for it. */
int mooi_fabric_post(struct mooi_fabric *fabric);

/* A piece has arrived or failed. */
void mooi_fabric_completed(struct mooi_fabric *fabric,
                           struct mooi_fabric_piece *piece, moo_err result);

/* ---- end.c: on the thread ---- */

/* A ring; its head is no read. */
void mooi_fabric_reads_init(struct mooi_fabric_read *head);
void mooi_fabric_reads_append(struct mooi_fabric_read *head,
                              struct mooi_fabric_read *read);
void mooi_fabric_reads_remove(struct mooi_fabric_read *read);

/* The read failed: it ends with `why`, at the latest after `grace_ns`. */
void mooi_fabric_doom(struct mooi_fabric_read *read, moo_err why,
                      uint64_t grace_ns);

/* Note libfabric's words about a failure. */
void mooi_fabric_explain(struct mooi_fabric_peer *peer, const char *what,
                         const char *said);

/* The read is complete, or none of its pieces is flying any more. */
void mooi_fabric_end(struct mooi_fabric *fabric, struct mooi_fabric_read *read);

/* End reads that waited too long, were cancelled, or are from peers that are
 * gone; all if `closing`. Returns the nanoseconds until the next is due, or
 * UINT64_MAX. */
uint64_t mooi_fabric_expire(struct mooi_fabric *fabric, uint64_t now,
                            int closing);

/* Free the peers that are gone and have no reads. */
void mooi_fabric_free_gone(struct mooi_fabric *fabric);

/* ---- cut.c: on the thread ---- */

/* Take all pieces of a peer away from the device: either they come back soon,
 * or all pieces of all peers have come back at the return. The pieces of reads
 * that are not doomed will be posted again. */
void mooi_fabric_cut(struct mooi_fabric *fabric, struct mooi_fabric_peer *peer);

/* The device no longer has the piece; it must be posted again. */
void mooi_fabric_take_back(struct mooi_fabric_piece *piece);
void mooi_fabric_post_later(struct mooi_fabric *fabric,
                            struct mooi_fabric_piece *piece);

/* ---- sockets.c ---- */

/* Shut down the sockets to a peer, and empty them. Returns their number. */
int mooi_fabric_hang_up(const struct mooi_fabric_peer *peer);

/* The sockets with the name of the serving endpoint, which is open. When
 * everything of the fabric is closed, close those that are left: libfabric
 * forgets a connection that it accepted and did not look at again. */
struct mooi_fabric_socket;
struct mooi_fabric_socket *mooi_fabric_served(const struct mooi_fabric *fabric);
void mooi_fabric_close_left(struct mooi_fabric_socket *all);

/* ---- thread.c ---- */

moo_err mooi_fabric_thread_start(struct mooi_fabric *fabric);

/* Lock held: the inbox is not empty any more. */
void mooi_fabric_thread_wake(struct mooi_fabric *fabric);

/* Ends all reads, and waits. */
void mooi_fabric_thread_stop(struct mooi_fabric *fabric);

#endif
