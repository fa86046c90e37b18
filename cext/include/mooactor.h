/* SPDX-License-Identifier: MIT */
/*
 * mooactor.h: the whole C interface of mooactor.
 *
 * cext/build.py cuts everything between the two cdef markers below and hands
 * it to cffi, so that part holds plain declarations only: no #include, no
 * macro but `#define NAME integer`, no inline function.
 *
 * Unless a contract says otherwise, a function may be called from any thread,
 * does not block, and after an error leaves its arguments as they were.
 * Results are moo_err; values come back through out-parameters.
 */
#ifndef MOOACTOR_H
#define MOOACTOR_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */

/* ---- errors ---- */

/* What a function reports. MOO_OK is 0, every other value is negative. */
typedef enum {
    MOO_OK = 0,
    MOO_EINVAL = -1,   /* an argument no correct caller passes */
    MOO_ENOMEM = -2,   /* the limit of shared memory, or the system's */
    MOO_ECLOSED = -3,  /* this plane or group was closed */
    MOO_EPEER = -4,    /* the other process died or hung up */
    MOO_ETIMEOUT = -5, /* the deadline passed first */
    MOO_EPROTO = -6,   /* bytes that no correct peer sends */
    MOO_EAUTH = -7,    /* the other side does not know the session key */
    MOO_EVERSION = -8, /* the other side speaks another version */
    MOO_ESYS = -9,     /* a system call failed: errno holds the reason */
    MOO_EFORK = -10,   /* used in a forked child, which does not own it */
    MOO_ESTALE = -11,  /* a lease that was revoked or used up before */
    MOO_EUNREACHABLE = -12 /* no allowed transport leads to the other process */
} moo_err;

/* A constant English phrase for `err`; never NULL, never to be freed. */
const char *moo_strerror(int err);

/* ---- the plane: tensors between processes ---- */

/*
 * A plane is one process's share of the data plane: the shared memory that it
 * owns, the leases that other processes hold on it, and what it has mapped of
 * theirs. Memory that was handed out, by moo_empty, moo_share, moo_import or a
 * fetch, stays mapped and readable until moo_drop, whatever becomes of its
 * owner and even after moo_plane_close.
 *
 * Two processes on one host share memory. Between hosts the receiver pulls the
 * bytes into memory of its own, over TCP or RDMA, and gives the lease back
 * then. Which it is follows from the pair; a descriptor has one form for all.
 *
 * All functions may be called from any thread at any time, except
 * moo_plane_free and moo_plane_rele, which come last. None calls back. In a
 * forked child, which does not own the plane, all return MOO_EFORK or do
 * nothing.
 */
typedef struct moo_plane moo_plane;

#define MOO_DESCRIPTOR_BYTES 40
#define MOO_KEY_BYTES 16
#define MOO_MOVED 1 /* the receiver becomes the owner in all but name */
#define MOO_NOWAIT 4 /* not for the first contact with a peer */

/* Open the plane of process `process_id`. Its socket is created in
 * `directory`, which only this user may enter; other processes of the session
 * pass the same directory and key. At most `limit` bytes of memory are taken.
 * MOO_ESYS leaves the reason in errno. */
moo_err moo_plane_open(const char *directory, uint64_t process_id,
                       const uint8_t *key, uint64_t limit, moo_plane **out);

/* Refuse new work, stop the thread, hang up on all importers (what they have
 * mapped stays valid). Waits for the thread, which never waits long. Safe to
 * call twice. What this process holds of others stays held until moo_drop. */
void moo_plane_close(moo_plane *plane);

/* Close, unmap everything, free. No memory of the plane may be in use. */
void moo_plane_free(moo_plane *plane);

/* Close, and free it once all that it handed out has been dropped. Until then
 * moo_drop, and nothing else, may be called with this plane. */
void moo_plane_rele(moo_plane *plane);

/* A block of own shared memory, uninitialised, page-aligned, until moo_drop.
 * MOO_ENOMEM: over the limit; see moo_holders. */
moo_err moo_empty(moo_plane *plane, size_t bytes, void **out);

/* The present value of data[0, bytes) in own shared memory, not to be written
 * to, that can be exported any number of times without a copy. It is a copy
 * itself, unless `data` lies in a block of moo_empty or moo_share that was not
 * written to since it was first exported or shared. */
moo_err moo_share(moo_plane *plane, const void *data, size_t bytes, void **out);

/* Declare that the memory at `data` is given away with its next export: the
 * receiver gets the memory itself, writable, if nobody else holds it. `data`
 * is a start that moo_empty or moo_import returned. MOO_EINVAL: it is not. */
moo_err moo_move(moo_plane *plane, void *data);

/* Describe data[0, bytes) for process `peer`, which then holds one lease. The
 * value is that of now: private memory is copied once, own and received shared
 * memory is not copied unless it was written to after an earlier export.
 * `flags`: MOO_MOVED and MOO_NOWAIT, or'ed. Writes MOO_DESCRIPTOR_BYTES to
 * `descriptor`.
 * May block for a round trip to the memory's owner, and for the first contact
 * with a peer on another host, which is bounded by a few seconds. With
 * MOO_NOWAIT the descriptor is good while contact is being made; if that comes
 * to nothing, the lease ends, and what the peer fetches fails with
 * MOO_EUNREACHABLE.
 * MOO_EPEER: the peer is dead. MOO_EUNREACHABLE: it lives on another host to
 * which no allowed transport leads, or led a moment ago; moo_plane_route says
 * what was tried. A connection that was lost is made anew by the next export.
 * Where nobody answers, exports fail at once for two seconds after an attempt,
 * while the next one goes on.
 * MOO_ENOMEM: as above. MOO_ESTALE: this memory was moved away before. */
moo_err moo_export(moo_plane *plane, const void *data, size_t bytes,
                   uint64_t peer, int flags, uint8_t *descriptor);

/* Take back a descriptor that was never sent. Does nothing if the receiver has
 * it already. MOO_EPROTO: it is no descriptor. */
moo_err moo_revoke(moo_plane *plane, const uint8_t *descriptor, size_t bytes);

/* Map what a descriptor describes: *out is readable for ever and writable
 * without anybody else seeing it, until moo_drop(*out). Waits at most
 * `timeout_ms` for the owner's first contact; what is on another host is
 * fetched, which takes as long as its owner keeps sending.
 * MOO_ESTALE: imported before, or revoked. MOO_EPEER: the owner died before it
 * made contact, or before all had been fetched. MOO_EUNREACHABLE: it is on
 * another host and made no contact. */
moo_err moo_import(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                   int timeout_ms, void **out, size_t *out_bytes);

/* End the lease of a descriptor unseen. */
moo_err moo_discard(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                    int timeout_ms);

/* End the use of memory at the start that moo_empty, moo_share, moo_import or a
 * fetch gave. Never fails; makes no system call in the common case but one that
 * looks for written pages. */
void moo_drop(moo_plane *plane, void *data);

/* A process died: end all its leases; let go of its memory once nothing here
 * uses it and `grace_ms` have passed, in which its last messages may still be
 * imported. */
void moo_peer_lost(moo_plane *plane, uint64_t peer, int grace_ms);

/* ---- reaching processes on other hosts ---- */

#define MOO_TRANSPORT_SHM 1
#define MOO_TRANSPORT_OFI 2
#define MOO_TRANSPORT_TCP 4
#define MOO_HOST_BYTES 16
#define MOO_STRIPES_MAX 16
#define MOO_THREADS_MAX 16
#define MOO_ENDPOINT_BYTES 1024 /* no endpoint is longer */
#define MOO_DEVICES_NO 0
#define MOO_DEVICES_IF_OFFERED 1
#define MOO_DEVICES_REQUIRED 2 /* no fabric that does not offer it */

typedef struct {
    uint32_t transports;  /* allowed ones, or'ed; those of both sides count */
    const char *bind;     /* numeric address to listen on, "*": all;
                             NULL: reached from this machine only */
    uint32_t stripes;     /* TCP connections for each pair, 0: default */
    uint32_t threads;     /* that move bulk over TCP, 0: default */
    int checksum;         /* CRC32C for each chunk over TCP */
    const char *provider; /* of libfabric, NULL: the best */
    int devices;          /* MOO_DEVICES_…: memory of GPUs over the fabric */
} moo_serve_options;

/* Say which transports may be used; without this, only shared memory. If others
 * than it are allowed, opens their listeners and puts this process's endpoint,
 * which says where it can be reached, into the plane's directory. Once, and
 * before the first export. Does not wait for anybody. MOO_EINVAL: no such
 * transport, no such address, or too late. MOO_ESYS: see errno.
 * MOO_EUNREACHABLE: a transport that is the only one allowed cannot be had
 * here, or a fabric for devices, which are required; moo_plane_route with the
 * own id says why. */
moo_err moo_plane_serve(moo_plane *plane, const moo_serve_options *options);

/* This process's endpoint, for processes that do not see its directory.
 * MOO_EINVAL: room is too small (MOO_ENDPOINT_BYTES is not), or no such thing
 * was asked of moo_plane_serve. */
moo_err moo_plane_endpoint(moo_plane *plane, uint8_t *out, size_t room,
                           size_t *bytes);

/* Make the endpoint of process `peer` known. It counts more than one found in
 * the directory. MOO_EPROTO: it is no endpoint, or another's. */
moo_err moo_plane_introduce(moo_plane *plane, uint64_t peer,
                            const uint8_t *endpoint, size_t bytes);

/* The identity of the host that process `peer` runs on, this process's own
 * among them: processes with the same can share memory. MOO_ESTALE: there is
 * no endpoint of it here (yet). */
moo_err moo_plane_host(moo_plane *plane, uint64_t peer, uint8_t *out);

/* Where that process listens for other hosts, this one's own addresses among
 * them: "10.0.0.1:80, [::1]:80", cut at `room`, always terminated; empty if
 * that is not known. */
moo_err moo_plane_addresses(moo_plane *plane, uint64_t peer, char *text,
                            size_t room);

/* What data for `peer` goes by: *transport is one of MOO_TRANSPORT_…, or 0 if
 * none is in use; `why` gets one sentence, cut at `room`. */
moo_err moo_plane_route(moo_plane *plane, uint64_t peer, uint32_t *transport,
                        char *why, size_t room);

/* Bytes so far: described for process `peer` by moo_export, and fetched from
 * it over a network. */
moo_err moo_plane_traffic(moo_plane *plane, uint64_t peer, uint64_t *exported,
                          uint64_t *fetched);

/* Which libfabric and which fabrics are to be had here, one a line: first the
 * library with its version, then the fabric that would be chosen, and whether
 * for memory of GPUs, too, then all of those with hardware; or, where there is
 * none, one sentence that says why. Cut at `room`, always terminated. Loads
 * libfabric and asks all its providers, which takes some tenths of a second.
 * MOO_EUNREACHABLE: none would be chosen. */
moo_err moo_fabric_probe(char *text, size_t room);

/* 1 if what it stands for must be fetched, and importing it would wait for a
 * network; 0 if not, or if it is no descriptor. */
int moo_descriptor_is_remote(const uint8_t *descriptor, size_t bytes);

/* ---- fetches: imports that do not wait ---- */

typedef struct moo_fetch moo_fetch;

/* Begin to receive what a descriptor stands for. Does not wait for a network;
 * what is on this host is imported at once, as moo_import does it.
 * `into`: NULL, or memory of the caller's, exactly as long, which must live
 * until the fetch is done or freed. A tag that is not 0 will appear, once,
 * in moo_plane_finished. On MOO_OK the descriptor is used up and *out is the
 * caller's, to be freed by moo_fetch_free. On an error it can be tried again:
 * MOO_ENOMEM: no room for it now. MOO_EINVAL: `into` is of another length. */
moo_err moo_fetch_begin(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, void *into, size_t into_bytes,
                        uint64_t tag, moo_fetch **out);

/* Wait up to `timeout_ms`. MOO_OK: *out is as from moo_import, to be dropped
 * (NULL if `into` was given). MOO_ETIMEOUT: not done yet. All other errors say
 * how it failed: MOO_EPEER: the owner died, or its connection broke.
 * MOO_EUNREACHABLE: it made no contact. MOO_ESTALE: fetched before, or revoked;
 * also if this told the end of it before. MOO_ESYS: errno is that of when it
 * failed, in whichever thread. */
moo_err moo_fetch_wait(moo_fetch *fetch, int timeout_ms, void **out,
                       size_t *out_bytes);

/* End it: the transfer if it is under way (nothing is written to `into` after
 * this returns), the memory if nobody took it, the lease. NULL: nothing. */
void moo_fetch_free(moo_fetch *fetch);

/* ---- memory of devices, read over a fabric ---- */

/*
 * What travels as the value is a *ticket*: a small block of moo_empty, whose
 * lease shows the owner that the memory behind it is in use. The owner says
 * beside it, in the message, what moo_device_share told of that memory. The
 * receiver reads by moo_device_fetch, in parts as it likes, and then gives the
 * lease back by moo_discard.
 *
 * A descriptor of a ticket for a process on another host is not remote in the
 * sense of moo_descriptor_is_remote, as nothing is to be fetched for it:
 * moo_fetch_begin of it, without `into`, is done at once, with *out NULL, and
 * leaves the lease; moo_import gives MOO_EINVAL.
 */

#define MOO_MEMORY_HOST 0
#define MOO_MEMORY_CUDA 1

/* Make a ticket of the block at `data`, a start that moo_empty returned.
 * MOO_EINVAL: it is not. */
moo_err moo_ticket(moo_plane *plane, void *data);

/* 1 for a ticket of a process on another host. */
int moo_descriptor_is_ticket(const uint8_t *descriptor, size_t bytes);

/* Register [start, start + bytes), of `kind` and on the device of that number,
 * with the fabric, to be read from by those who are told *key and *base, and to
 * be read into by moo_device_fetch. It must stay what it is until the plane is
 * closed. The same start and length again give the same. May take some time,
 * as pages are pinned.
 * MOO_EUNREACHABLE: there is no fabric here, or it knows no such memory;
 * MOO_ENOMEM, MOO_ESYS: it refused. why[0, room) says the reason. */
moo_err moo_device_share(moo_plane *plane, void *start, size_t bytes, int kind,
                         int device, uint64_t *key, uint64_t *base, char *why,
                         size_t room);

/* Begin to read `bytes` from remote address `from`, under `key`, of the process
 * that sent the ticket, into `into`, which lies in what was given to
 * moo_device_share here. Several may be under way for one ticket. As for
 * moo_fetch_begin; *out of moo_fetch_wait is NULL. The lease stood until the
 * end of a fetch that succeeds. MOO_EINVAL: not a ticket, or not registered.
 * moo_fetch_wait gives MOO_EUNREACHABLE: the owner has no connection to us any
 * more, or does not use the fabric for us. */
moo_err moo_device_fetch(moo_plane *plane, const uint8_t *descriptor,
                         size_t descriptor_bytes, uint64_t from, uint64_t key,
                         void *into, size_t bytes, moo_fetch **out);

/* Readable as long as there are tags of finished fetches. The plane's, until
 * moo_plane_close; -1 with errno if there is none to be had. */
int moo_plane_finished_fd(moo_plane *plane);

/* Take the tags of fetches that are done, the oldest first. Returns how many
 * were written. A fetch that was freed before is not among them. */
size_t moo_plane_finished(moo_plane *plane, uint64_t *tags, size_t room);

/* Counters and sizes, in bytes unless named otherwise. */
typedef struct {
    uint64_t limit;           /* as given */
    uint64_t used;            /* in blocks that somebody holds */
    uint64_t reserved;        /* address space of all slabs */
    uint64_t resident;        /* memory that the slabs really occupy */
    uint64_t slabs;           /* count */
    uint64_t blocks;          /* count: held by somebody */
    uint64_t leases;          /* count: granted and not yet given back */
    uint64_t peers;           /* count: processes holding a connection to us */
    uint64_t owners;          /* count: processes whose memory is mapped */
    uint64_t imports;         /* count: received memory in use */
    uint64_t imported;        /* bytes of it */
    uint64_t exports;         /* count, so far: descriptors made */
    uint64_t exports_copied;  /* count, so far: of those, with a copy */
    uint64_t bytes_copied;    /* so far */
    uint64_t revoked;         /* count, so far: leases ended by a death */
    uint64_t links;           /* count: connections to and from other hosts */
    uint64_t fetches;         /* count: under way, or waiting for the owner */
    uint64_t fetched_tcp;     /* so far: received over TCP */
    uint64_t fetched_ofi;     /* so far: read over RDMA */
    uint64_t served_tcp;      /* so far: sent over TCP on request */
    uint64_t kept_for_forks;  /* bytes dropped here, own and received, that
                                 forked children may still read */
} moo_statistics;

void moo_plane_statistics(moo_plane *plane, moo_statistics *out);

/* Who holds this plane's memory, the largest first; `process_id` is the
 * plane's own for blocks in use here. Returns how many were written. */
typedef struct {
    uint64_t process_id;
    uint64_t bytes;
    uint64_t leases;
} moo_holder;

size_t moo_holders(moo_plane *plane, moo_holder *out, size_t capacity);

/* 1 if the block of moo_empty or moo_share that contains `data`, which the
 * caller holds, is held once more: by a lease of any process, or by another
 * moo_share. 0 if not, and for a plane that was closed. */
int moo_is_held(moo_plane *plane, const void *data);

/* ---- collectives ---- */

/*
 * A learner group: processes that reduce tensors together. Every member makes
 * the same calls in the same order; a call of one that differs from the
 * others' fails on all of them with MOO_EMISMATCH.
 *
 * An operation ends alike for all members: either all get its result, bit for
 * bit the same, or all get the same error. What a failed operation leaves in
 * its outputs is undefined.
 *
 * Members of one host reduce through shared memory; between hosts, one member
 * of each does it in a ring of connections.
 */
#define MOO_GROUP_MAX 64
#define MOO_EMISMATCH -32 /* the members did not call the same thing */

typedef struct moo_group moo_group;
typedef struct moo_work moo_work;

typedef enum {
    MOO_GROUP_BARRIER,
    MOO_GROUP_ALLREDUCE,
    MOO_GROUP_BROADCAST,
    MOO_GROUP_ALL_GATHER,
    MOO_GROUP_REDUCE_SCATTER,
    MOO_GROUP_KINDS
} moo_group_kind;

typedef enum {
    MOO_OP_SUM,
    MOO_OP_MEAN, /* floating point only */
    MOO_OP_MIN,
    MOO_OP_MAX,
    MOO_OP_PRODUCT,
    MOO_OP_COUNT
} moo_reduction;

typedef enum {
    MOO_DT_F32,
    MOO_DT_F64,
    MOO_DT_F16,
    MOO_DT_BF16,
    MOO_DT_I32,
    MOO_DT_I64,
    MOO_DT_U8,
    MOO_DT_COUNT
} moo_dtype;

/* What to do. inputs[i] and outputs[i] are bytes[i] long, each a whole number
 * of elements; the same address twice works in place, no other overlap does.
 * ALLREDUCE: both. BROADCAST: both the same; the root's bytes go to
 * everybody. BARRIER: neither. ALL_GATHER: one input, and an output
 * `size` times as long. REDUCE_SCATTER: one input, and an output a `size`th
 * as long. */
typedef struct {
    moo_group_kind kind;
    moo_dtype dtype;
    moo_reduction op;
    uint32_t root;
    uint64_t layout; /* any hash of the whole call's shapes and types: all
                        members' must be equal */
    uint32_t count;  /* of tensors */
    const void *const *inputs;
    void *const *outputs;
    const uint64_t *bytes;
    uint64_t output_bytes; /* the last two kinds: of the one output */
} moo_request;

/* How it went. MOO_EPEER: the member of `rank` in `epoch` died, or left
 * (left != 0). MOO_ETIMEOUT: it did not come in time. MOO_EMISMATCH: it called
 * something else, and `text` says what. MOO_EUNREACHABLE: no transport leads
 * to the other hosts. pid is its process; `text` may say more. */
typedef struct {
    int status;
    uint32_t rank, epoch;
    int32_t pid;
    int left;
    char text[256];
} moo_outcome;

typedef struct {
    uint32_t rank, size, epoch, min_size;
    uint32_t pending; /* operations of this member not finished yet */
    uint64_t operations, bytes, failures;
    double waited_s; /* time asleep, waiting for other members */
    uint32_t hosts;     /* that the members are on, as the group sees it */
    uint32_t transport; /* MOO_TRANSPORT_…: what this member's host sends large
                           tensors by in this epoch; 0: not connected yet */
} moo_group_info;

/* The size that the shared segment of a group must have. Sparse: only what
 * members use takes memory, a few MiB each. */
uint64_t moo_group_segment_bytes(void);

/* How a member reaches members on other hosts. All zero: the defaults. */
typedef struct {
    const char *host;    /* members of equal names share memory; NULL: "" */
    uint32_t transports; /* MOO_TRANSPORT_…, or 0: all. Without SHM a member
                            shares memory with nobody. */
    const char *bind;    /* a numeric address, "*" for all, NULL: all, but this
                            machine's own if all members have one name */
    int checksum;        /* CRC32C of what hosts send each other: nothing that
                            arrived otherwise than it was sent succeeds. One
                            member that wants it is enough. */
    uint32_t stripes;    /* TCP connections from each host to the next, at most
                            16, 0: default. The most that a member wants. */
} moo_group_options;

/* Join the group that lives in the segment `fd`, which stays the caller's.
 * Does not wait for others: see moo_group_ready. `process_id` identifies this
 * process to the user; min_size must be the same for all; timeout_s bounds
 * each operation; `options` may be NULL. MOO_EINVAL: another min_size, too
 * small a segment, or an option that makes no sense.
 * MOO_ENOMEM: MOO_GROUP_MAX members already. MOO_EVERSION: another version.
 * MOO_ESYS: see errno. */
moo_err moo_group_join(int fd, uint64_t process_id, uint32_t min_size,
                       double timeout_s, const moo_group_options *options,
                       moo_group **group);

/* Wait until this member is let in and the group has min_size members.
 * MOO_ETIMEOUT: `seconds` are over, or a signal came; call again. */
moo_err moo_group_ready(moo_group *group, double seconds);

/* Queue a call: `parts` operations, at least one, for as many types of
 * elements. They run one after the other until one fails, which is then how
 * the call ended; what is left of it is not begun, on no member. All members
 * must agree on the whole call before anything of it happens.
 * The arrays of the requests are copied, the tensors are
 * not: they must live, and the inputs stay unchanged, until *work is done.
 * Calls run in the order queued, each in the thread that waits for it,
 * or in the group's own thread once that was started. Does not block. */
moo_err moo_group_submit(moo_group *group, const moo_request *requests,
                         uint32_t parts, moo_work **work);

/* Run the queue up to `work`, or wait while another thread does. MOO_OK: it
 * is done and *outcome says how it went. MOO_ETIMEOUT: `seconds` are over, or
 * a signal came; it is still queued, or half done. */
moo_err moo_work_wait(moo_work *work, double seconds, moo_outcome *outcome);

/* Whether `work` is done. Never blocks. */
int moo_work_done(moo_work *work);

/* Give the caller's hold of `work` back; it still runs if it did not yet. */
void moo_work_free(moo_work *work);

/* From now on a thread of the group's own runs the queue. */
moo_err moo_group_start(moo_group *group);

void moo_group_describe(moo_group *group, moo_group_info *info);

/* What keeps a newcomer out: how the members' last barrier ended, if it failed.
 * status MOO_OK: it succeeded, or there was none. Takes the group's lock, for
 * which it may wait as long as another member's death takes to show. */
void moo_group_obstacle(moo_group *group, moo_outcome *out);

/* The members in rank order: pids[r], ids[r] for r < the returned size, which
 * is at most MOO_GROUP_MAX, and both arrays must have room for that. */
uint32_t moo_group_members(moo_group *group, int32_t *pids, uint64_t *ids);

/* Leave and free the group. Waits for the operation under way, if a thread
 * runs it; what is queued behind it fails with MOO_ECLOSED. The others go on
 * without this member. No other thread may use the group any more, but its
 * works remain valid. In a forked child: frees, and does nothing else. */
void moo_group_leave(moo_group *group);

/* ---- mail: the ends of the control plane's ZeroMQ sockets ---- */

/*
 * Messages are received, kept and sent here, and not by Python: it may run a
 * signal handler between any two of its instructions, and pyzmq's functions
 * run them as well. What a handler raises there loses what was received and
 * not yet kept; what it calls finds locks held. No step below can be torn
 * apart in this way, and none is held by a caller from one call to the next.
 */

/* Find libzmq where pyzmq has loaded it; needed before all else here.
 * MOO_ESYS: it is not among this process's libraries. */
moo_err moo_zmq_find(void);

/* One process's inbox: a ROUTER socket, its messages, and who waits for them.
 * A message is a letter: the connection's identity, and one part more.
 *
 * It belongs to the process that opened it. In one that was forked from that, a
 * wait ends with MOO_SHUT, what is sent is refused with MOO_ECLOSED, and all
 * else does nothing: the child's exit changes nothing for its parent. */
typedef struct moo_inbox moo_inbox;

/* `socket`: of libzmq, and used by nobody else until moo_inbox_close. `others`:
 * at most two descriptors whose readability ends a wait, too. `signalled`: the
 * pthread_t that runs signal handlers once its wait has ended. A signal that
 * comes just before it sleeps does not end the sleep: so its waits end by
 * MOO_LOOK after MOO_SIGNAL_US at the latest. 0: no thread. */
moo_err moo_inbox_open(uintptr_t socket, const int *others, int count,
                       uintptr_t signalled, moo_inbox **out);
#define MOO_SIGNAL_US 200000

/* End all waits, drop what is there, and let go of the socket. Waits until no
 * thread polls it, which is at once. */
void moo_inbox_close(moo_inbox *inbox);

/* After moo_inbox_close and the last moo_turn_leave. Outboxes may be freed
 * later. */
void moo_inbox_free(moo_inbox *inbox);

/* Something was completed: whoever leads, without being told of what it waits
 * for, looks again. From any thread. */
void moo_inbox_wake(moo_inbox *inbox);

/* A letter from this process to itself; copies data[0, bytes). MOO_ECLOSED. */
moo_err moo_inbox_put(moo_inbox *inbox, const char *data, size_t bytes);

/* For tests: 1 if nobody who sleeps or polls has been woken. */
int moo_inbox_settled(moo_inbox *inbox);

/* Whether some thread leads: a hint, as that may change at once. */
int moo_inbox_led(moo_inbox *inbox);

/* Count an event loop more (1) or less (-1) that reads the inbox. Returns the
 * descriptor that is readable when a letter waits and no thread leads. */
int moo_inbox_loops(moo_inbox *inbox, int change);

/* What a wait may end with. MOO_MAIL: `data`, `bytes` of the turn have the
 * first letter; call moo_turn_handled when it was. MOO_OTHER: a descriptor of
 * the others is readable. MOO_LOOK: something may be complete, or a signal
 * came. MOO_LED: another thread leads. MOO_LATE: the time is over. MOO_SHUT. */
#define MOO_MAIL 1
#define MOO_OTHER 2
#define MOO_MAIL_AND_OTHER 3
#define MOO_LOOK 4
#define MOO_LED 5
#define MOO_LATE 6
#define MOO_SHUT 7

/* One wait of one thread, for as long as it takes. Zeroed by its owner, and
 * left by moo_turn_leave in any case; then it may wait again, as it is. */
typedef struct moo_turn {
    const char *data; /* until the next call with this turn */
    uint64_t bytes;
    uint64_t serial;
    uint64_t rest[8];
} moo_turn;

/* Wait `timeout_us`, -1 for ever. Blocks; a signal ends it. A leader sends what
 * waits in outboxes before it sleeps. What is completed after the turn's last
 * wait ends this one by MOO_LOOK, if it would lead. Letters come in their
 * order, the same one until it is handled, also to another thread. `woken`:
 * moo_turn_wake is called when what this turn waits for is done, so it may
 * sleep while another thread leads; otherwise MOO_LED says so. */
int moo_turn_wait(moo_inbox *inbox, moo_turn *turn, int64_t timeout_us,
                  int woken);

/* The letter that this turn read was handled; 1 if it has the next one now.
 * As handling it may have completed something, other turns look again: as by
 * moo_inbox_wake. */
int moo_turn_handled(moo_turn *turn);

/* Where the serial number of the letter stands that was handled last, or 0.
 * Letters are handled in their order, so a higher one is still to be. It may be
 * read at any time while the inbox is there. */
const uint64_t *moo_inbox_taken(const moo_inbox *inbox);

/* From any thread: end this turn's wait, or else its next one, by MOO_LOOK. */
void moo_turn_wake(moo_turn *turn);

/* The end of a turn; nothing happens if it has not begun, or was left. */
void moo_turn_leave(moo_turn *turn);

/* What goes out to one process. Records are sent at once, or gathered into one
 * message. From any thread; none blocks. */
typedef struct moo_outbox moo_outbox;

/* `prefix` begins each message. `socket`: a DEALER of libzmq. */
moo_err moo_outbox_open(moo_inbox *inbox, uintptr_t socket, const char *prefix,
                        size_t prefix_bytes, moo_outbox **out);

/* Send a record now, behind those that wait. After MOO_ENOMEM it was not. */
moo_err moo_outbox_send(moo_outbox *outbox, const char *record, size_t bytes);

/* Keep a record for the next moo_inbox_flush (*waits = 1), or send it with
 * those that wait if they are many (*waits = 0). */
moo_err moo_outbox_queue(moo_outbox *outbox, const char *record, size_t bytes,
                         int *waits);

/* Send what waits in all outboxes of an inbox. */
void moo_inbox_flush(moo_inbox *inbox);

/* Let go of the socket; what waits, and what is sent from here on, is
 * dropped. */
void moo_outbox_close(moo_outbox *outbox);

/* Close it, and free it. */
void moo_outbox_free(moo_outbox *outbox);

/* cdef: end */

#endif
