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

/* The result of a function. MOO_OK is 0, every other value is negative. */
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
 * owns, the leases that other processes hold on it, and the memory of other
 * processes that it has mapped. Memory from moo_empty, moo_share, moo_import
 * or a fetch stays mapped and readable until moo_drop, even if its owner dies
 * and even after moo_plane_close.
 *
 * Two processes on one host share memory. Between hosts the receiver pulls the
 * bytes into memory of its own, over TCP or RDMA, and then gives the lease
 * back. The pair of processes decides which; all descriptors have one form.
 *
 * All functions may be called from any thread at any time, except
 * moo_plane_free and moo_plane_rele, which come last. None calls back. In a
 * forked child, which does not own the plane, all return MOO_EFORK or do
 * nothing.
 */
typedef struct moo_plane moo_plane;

#define MOO_DESCRIPTOR_BYTES 40
#define MOO_KEY_BYTES 16
#define MOO_MOVED 1 /* the receiver may write to the memory itself */
#define MOO_NOWAIT 4 /* do not wait for first contact with a peer */

/* Open the plane of process `process_id`. Its socket is created in
 * `directory`, which only this user may enter; other processes of the session
 * pass the same directory and key. At most `limit` bytes of memory are taken.
 * MOO_ESYS leaves the reason in errno. */
moo_err moo_plane_open(const char *directory, uint64_t process_id,
                       const uint8_t *key, uint64_t limit, moo_plane **out);

/* Refuse new work, stop the thread, hang up on all importers (their mappings
 * stay valid). Waits for the thread, which never takes long. Safe to call
 * twice. Imported memory stays held until moo_drop. */
void moo_plane_close(moo_plane *plane);

/* Close, unmap everything, free. No memory of the plane may be in use. */
void moo_plane_free(moo_plane *plane);

/* Close it, and free it once all memory from it has been dropped. Until then
 * only moo_drop may be called with this plane. */
void moo_plane_rele(moo_plane *plane);

/* A block of own shared memory, uninitialised, page-aligned, until moo_drop.
 * MOO_ENOMEM: over the limit; see moo_holders. */
moo_err moo_empty(moo_plane *plane, size_t bytes, void **out);

/* The present value of data[0, bytes) in own shared memory, read-only by
 * contract. It can be exported any number of times without a copy. It is
 * itself a copy, unless `data` lies in a block of moo_empty or moo_share that
 * was not written to since it was first exported or shared. */
moo_err moo_share(moo_plane *plane, const void *data, size_t bytes, void **out);

/* Give the memory at `data` away with its next export: the receiver gets the
 * memory itself, writable, if nobody else holds it. `data` is a start that
 * moo_empty or moo_import returned. MOO_EINVAL: it is not. */
moo_err moo_move(moo_plane *plane, void *data);

/* Describe data[0, bytes) for process `peer`, which then holds one lease. The
 * value is the present one. Private memory is copied once. Own and received
 * shared memory is copied only if it was written to after an earlier export.
 * `flags`: MOO_MOVED and MOO_NOWAIT, or'ed. Writes MOO_DESCRIPTOR_BYTES to
 * `descriptor`.
 * May block for a round trip to the memory's owner, and for the first contact
 * with a peer on another host, which is bounded by a few seconds. With
 * MOO_NOWAIT the descriptor is good while contact is being made; if contact
 * fails, the lease ends, and the peer's fetch fails with MOO_EUNREACHABLE.
 * MOO_EPEER: the peer is dead. MOO_EUNREACHABLE: it lives on another host to
 * which no allowed transport leads, or led a moment ago; moo_plane_route says
 * what was tried. A connection that is lost under leases is made again; they
 * stand meanwhile. If nobody answers they end, and exports fail at once for
 * three seconds after an attempt, while the next attempt is under way.
 * MOO_ENOMEM: as above. MOO_ESTALE: this memory was moved away before. */
moo_err moo_export(moo_plane *plane, const void *data, size_t bytes,
                   uint64_t peer, int flags, uint8_t *descriptor);

/* Take back a descriptor that was never sent. Does nothing if the receiver has
 * it already. MOO_EPROTO: it is no descriptor. */
moo_err moo_revoke(moo_plane *plane, const uint8_t *descriptor, size_t bytes);

/* 1 if its lease stands and the receiver has done nothing with it yet, so that
 * moo_revoke would end it. 0 for what is no descriptor. */
int moo_is_unclaimed(moo_plane *plane, const uint8_t *descriptor, size_t bytes);

/* So long an owner's first contact may take, over a network or on its own
 * host. On a network the owner gives up somewhat earlier. */
#define MOO_CONTACT_MS 6500

/* Map the memory of a descriptor. Until moo_drop(*out), *out stays readable,
 * and writes to it are private. Waits at most `timeout_ms` for the owner's
 * first contact. Data of another host is fetched, which takes as long as its
 * owner keeps sending. MOO_ESTALE: imported before, or revoked. MOO_EPEER: the
 * owner died before it made contact, or before all had been fetched.
 * MOO_EUNREACHABLE: it is on another host and made no contact. */
moo_err moo_import(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                   int timeout_ms, void **out, size_t *out_bytes);

/* The same, unless it was done: *out is not NULL then. So a signal handler may
 * do it between the decision to call this and the call. */
moo_err moo_import_once(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, int timeout_ms, void **out,
                        size_t *out_bytes);

/* End the lease of a descriptor without importing it. */
moo_err moo_discard(moo_plane *plane, const uint8_t *descriptor, size_t bytes,
                    int timeout_ms);

/* End the use of memory at the start that moo_empty, moo_share, moo_import or a
 * fetch gave. Never fails. In the common case its only system call looks for
 * written pages. */
void moo_drop(moo_plane *plane, void *data);

/* A process died: end all its leases. Unmap its memory once nothing here uses
 * it and `grace_ms` have passed; until then its last messages may be
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
    uint32_t first_port;  /* of those to listen on; 0: the system chooses */
    uint32_t last_port;
} moo_serve_options;

/* Set the transports that may be used; the default is shared memory only. If
 * others are allowed, opens their listeners and puts this process's endpoint
 * (its addresses) into the plane's directory. To be called once, before the
 * first export. Does not wait for other processes. MOO_EINVAL: no such
 * transport, no such address, or too late. MOO_ESYS: see errno; EADDRINUSE: all
 * of the ports are taken. MOO_EUNREACHABLE: the only allowed transport is missing here, or devices are
 * required and no fabric serves them; moo_plane_route with the own id says
 * why. */
moo_err moo_plane_serve(moo_plane *plane, const moo_serve_options *options);

/* This process's endpoint, for processes that do not see its directory.
 * MOO_EINVAL: room is too small (MOO_ENDPOINT_BYTES is not), or
 * moo_plane_serve allowed no network. */
moo_err moo_plane_endpoint(moo_plane *plane, uint8_t *out, size_t room,
                           size_t *bytes);

/* Make the endpoint of process `peer` known. It has precedence over one found
 * in the directory. MOO_EPROTO: it is no endpoint, or another's. */
moo_err moo_plane_introduce(moo_plane *plane, uint64_t peer,
                            const uint8_t *endpoint, size_t bytes);

/* The identity of the host that process `peer` runs on; `peer` may be this
 * process. Processes of equal identity can share memory. MOO_ESTALE: there is
 * no endpoint of it here (yet). */
moo_err moo_plane_host(moo_plane *plane, uint64_t peer, uint8_t *out);

/* The addresses where process `peer`, which may be this one, listens for other
 * hosts: "10.0.0.1:80, [::1]:80", cut at `room`, always terminated; empty if
 * that is not known. */
moo_err moo_plane_addresses(moo_plane *plane, uint64_t peer, char *text,
                            size_t room);

/* The transport of data for `peer`: *transport is one of MOO_TRANSPORT_…, or 0
 * if none is in use. `why` gets one sentence, cut at `room`. */
moo_err moo_plane_route(moo_plane *plane, uint64_t peer, uint32_t *transport,
                        char *why, size_t room);

/* Bytes so far: described for process `peer` by moo_export, and fetched from
 * it over a network. */
moo_err moo_plane_traffic(moo_plane *plane, uint64_t peer, uint64_t *exported,
                          uint64_t *fetched);

/* The libfabric and the fabrics of this host, one a line: first the library
 * with its version, then the fabric that would be chosen and whether it reads
 * memory of GPUs, then all fabrics with hardware. If there is none, one
 * sentence says why. Cut at `room`, always terminated. Loads libfabric and
 * asks all its providers: some tenths of a second. MOO_EUNREACHABLE: none
 * would be chosen. */
moo_err moo_fabric_probe(char *text, size_t room);

/* 1 if its data must be fetched, so that moo_import would wait for a network;
 * 0 if not, or if it is no descriptor. */
int moo_descriptor_is_remote(const uint8_t *descriptor, size_t bytes);

/* The same, for a receiver: its owner may not have known yet that the two are
 * on different hosts. */
int moo_plane_is_remote(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes);

/* ---- fetches: imports that do not wait ---- */

typedef struct moo_fetch moo_fetch;

/* Begin to receive the data of a descriptor. Does not wait for a network; data
 * of this host is imported at once, as by moo_import. `into`: NULL, or memory
 * of the caller's, exactly as long, which must live until the fetch is done or
 * freed. A tag that is not 0 will appear, once, in moo_plane_finished. On
 * MOO_OK the descriptor is used up and *out is the caller's, to be freed by
 * moo_fetch_free. After an error the call may be repeated. MOO_ENOMEM: no room
 * for it now. MOO_EINVAL: `into` is of another length. */
moo_err moo_fetch_begin(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, void *into, size_t into_bytes,
                        uint64_t tag, moo_fetch **out);

/* The same, unless it was done: *out is not NULL then. */
moo_err moo_fetch_begin_once(moo_plane *plane, const uint8_t *descriptor,
                             size_t bytes, void *into, size_t into_bytes,
                             uint64_t tag, moo_fetch **out);

/* Wait up to `timeout_ms`. MOO_OK: *out is as from moo_import, to be dropped
 * (NULL if `into` was given). MOO_ETIMEOUT: not done yet. All other errors say
 * how it failed: MOO_EPEER: the owner died, or its connection broke and was
 * not made again in time.
 * MOO_EUNREACHABLE: it made no contact. MOO_ESTALE: fetched before, or
 * revoked, or an earlier call returned the end of it. MOO_ESYS: errno is that
 * of the failure, in any thread. */
moo_err moo_fetch_wait(moo_fetch *fetch, int timeout_ms, void **out,
                       size_t *out_bytes);

/* End it: the transfer if it is under way (after the return nothing is written
 * to `into`), the memory if nobody took it, and the lease. NULL: nothing. */
void moo_fetch_free(moo_fetch *fetch);

/* End the fetch at that address, if there is one. */
void moo_fetch_free_at(moo_fetch **fetch);

/* ---- memory of devices, read over a fabric ---- */

/*
 * The value travels as a *ticket*: a small block of moo_empty, whose lease
 * shows the owner that the memory behind it is in use. The owner puts *key and
 * *base of moo_device_share into the same message. The receiver reads by
 * moo_device_fetch, in parts of any size, and then gives the lease back by
 * moo_discard.
 *
 * A ticket needs no fetch of its own, so moo_descriptor_is_remote of it is 0,
 * also for a process on another host. moo_fetch_begin of it, without `into`,
 * is done at once, with *out NULL, and leaves the lease; moo_import gives
 * MOO_EINVAL.
 */

#define MOO_MEMORY_HOST 0
#define MOO_MEMORY_CUDA 1

/* Make a ticket of the block at `data`, a start that moo_empty returned.
 * MOO_EINVAL: it is not. */
moo_err moo_ticket(moo_plane *plane, void *data);

/* 1 for a ticket of a process on another host. */
int moo_descriptor_is_ticket(const uint8_t *descriptor, size_t bytes);

/* Register [start, start + bytes), memory of `kind` on the device of that
 * number, with the fabric. Processes that know *key and *base can read it, and
 * moo_device_fetch can read into it. The memory must stay allocated until the
 * plane is closed. The same start and length again give the same. May take
 * some time, as pages are pinned.
 * MOO_EUNREACHABLE: there is no fabric here, or it knows no such memory;
 * MOO_ENOMEM, MOO_ESYS: it refused. why[0, room) says the reason. */
moo_err moo_device_share(moo_plane *plane, void *start, size_t bytes, int kind,
                         int device, uint64_t *key, uint64_t *base, char *why,
                         size_t room);

/* Begin to read `bytes` from remote address `from`, under `key`, of the
 * process that sent the ticket, into `into`, which lies in memory registered
 * here by moo_device_share. Several may be under way for one ticket. Otherwise
 * as moo_fetch_begin; *out of moo_fetch_wait is NULL. If a fetch succeeds, the
 * lease stood until its end. MOO_EINVAL: not a ticket, or not registered.
 * moo_fetch_wait gives MOO_EUNREACHABLE: the owner's connection to us is gone,
 * or does not use the fabric. */
moo_err moo_device_fetch(moo_plane *plane, const uint8_t *descriptor,
                         size_t descriptor_bytes, uint64_t from, uint64_t key,
                         void *into, size_t bytes, moo_fetch **out);

/* A descriptor that is readable while there are tags of finished fetches. It
 * belongs to the plane, until moo_plane_close. -1 with errno if none can be
 * opened. */
int moo_plane_finished_fd(moo_plane *plane);

/* Take the tags of fetches that are done, the oldest first. Returns how many
 * were written. Fetches that were freed before are left out. */
size_t moo_plane_finished(moo_plane *plane, uint64_t *tags, size_t room);

/* Counters and sizes, in bytes unless named otherwise. */
typedef struct {
    uint64_t limit;           /* as given */
    uint64_t used;            /* in blocks that are held */
    uint64_t reserved;        /* address space of all slabs */
    uint64_t resident;        /* physical memory of the slabs */
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

/* The holders of this plane's memory, the largest first; `process_id` is the
 * plane's own for blocks in use here. Returns how many were written. */
typedef struct {
    uint64_t process_id;
    uint64_t bytes;
    uint64_t leases;
} moo_holder;

size_t moo_holders(moo_plane *plane, moo_holder *out, size_t capacity);

/* `data` lies in a block of moo_empty or moo_share that the caller holds. 1 if
 * the block has another hold: a lease of any process, or another moo_share. 0
 * if not, or if the plane was closed. */
int moo_is_held(moo_plane *plane, const void *data);

/* ---- collectives ---- */

/*
 * A learner group: processes that reduce tensors together. Every member makes
 * the same calls in the same order; if one call differs from the others', all
 * fail with MOO_EMISMATCH.
 *
 * An operation ends alike for all members: either all get its result, bit for
 * bit the same, or all get the same error. After an error the outputs are
 * undefined.
 *
 * Members of one host reduce through shared memory; between hosts, one member
 * of each does it in a ring of connections.
 */
#define MOO_GROUP_MAX 1024     /* members */
#define MOO_GROUP_TEAM_MAX 64  /* members on one host */
#define MOO_GROUP_HOSTS_MAX 64 /* hosts */
#define MOO_EMISMATCH -32 /* the members' calls differ */

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

/* An operation. inputs[i] and outputs[i] are bytes[i] long, each a whole
 * number of elements; the same address twice works in place, no other overlap
 * does. ALLREDUCE: both. BROADCAST: both the same; the root's bytes go to
 * everybody. BARRIER: neither. ALL_GATHER: one input, and an output `size`
 * times as long. REDUCE_SCATTER: one input, and an output a `size`th as
 * long. */
typedef struct {
    moo_group_kind kind;
    moo_dtype dtype;
    moo_reduction op;
    uint32_t root;
    uint64_t layout; /* any hash of the whole call's shapes, types and keys:
                        all members' must be equal */
    uint32_t count;  /* of tensors */
    const void *const *inputs;
    void *const *outputs;
    const uint64_t *bytes;
    uint64_t output_bytes; /* the last two kinds: of the one output */
} moo_request;

/* A member: its process, and the name of its host. */
typedef struct {
    int32_t pid;
    uint64_t id;
    char host[64];
} moo_member;

/* The end of a call. MOO_EPEER: the member of `rank` in `epoch` died, or left
 * (left != 0). MOO_ETIMEOUT: it did not come in time. MOO_EMISMATCH: its call
 * was another, and `text` names both. MOO_EUNREACHABLE: no transport leads to
 * the other hosts. MOO_ECLOSED: this member has left, or, as `text` says, it is
 * none any more, because the connections between its host and another break
 * again and again. pid is its process; `text` may say more. */
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
    uint32_t hosts;     /* on which the members are, as the group sees it */
    uint32_t transport; /* MOO_TRANSPORT_…: carries large tensors from this
                           host in this epoch; 0: not connected yet */
} moo_group_info;

/* The size that the shared segment of a group must have. It is sparse: only
 * the used part takes memory, a few MiB for each member. */
uint64_t moo_group_segment_bytes(void);

/* How a member reaches members on other hosts. All zero: the defaults. */
typedef struct {
    uint32_t transports; /* MOO_TRANSPORT_…, or 0: all. A member without SHM
                            joins a segment that no other member has. */
    const char *bind;    /* a numeric address to listen on, "*" for all; NULL:
                            only members of this machine can connect */
    uint32_t first_port, last_port; /* the ports to listen on; 0: any */
    int checksum;        /* CRC32C of the bytes between hosts: corrupted bytes
                            fail the operation. One member that wants it is
                            enough. */
    uint32_t stripes;    /* TCP connections from each host to the next, at most
                            16, 0: default. The most that a member wants. */
    int finishes; /* an allreduce or a barrier that loses a member is made by
                     the others, with their own inputs; else all get MOO_EPEER.
                     The same for all members. */
    uint32_t backend; /* what else all members must have in common, up to 127 */
} moo_group_options;

/* The agent's side of a group. The agent of a host gives members their slots,
 * notices when they end, and tells them who belongs to the group and which
 * operations are aborted. The group's master decides that. The two talk by
 * frames, which the caller carries: after each of these calls it takes out what
 * there is by moo_group_agent_next, and hands it to moo_group_master_take, in
 * order; and the other way. One thread at a time calls these functions; none
 * blocks. */
#define MOO_GROUP_FRAME_BYTES 65536 /* at most */
typedef struct moo_group_agent moo_group_agent;

/* Begin the part of a group that lives in the segment `fd`, all zero, which
 * stays the caller's. To the master it is a host: `host` is its number, not 0,
 * which the group never uses again; `name` is what users call it.
 * MOO_EINVAL: the segment is too small, or the name too long. MOO_ENOMEM.
 * MOO_ESYS: see errno. */
moo_err moo_group_agent_open(int fd, uint32_t host, const char *name,
                             moo_group_agent **agent);
/* An eventfd that members need, beside the segment. It stays the agent's. */
int moo_group_agent_bell(const moo_group_agent *agent);
/* A descriptor that is readable when the agent has to look. */
int moo_group_agent_fd(const moo_group_agent *agent);
/* See what members want, and which of them are dead, and act on it. */
void moo_group_agent_look(moo_group_agent *agent);
/* A frame of the master's. MOO_EPROTO: it is none. */
moo_err moo_group_agent_take(moo_group_agent *agent, const void *bytes,
                             size_t length);
/* The next frame for the master: its length, and its bytes, for which `bytes`
 * has room. 0: there is none. */
size_t moo_group_agent_next(moo_group_agent *agent, void *bytes);
/* Members that are still there are left to themselves. */
void moo_group_agent_close(moo_group_agent *agent);

/* The master of one group: it decides who belongs to it. As above. */
typedef struct moo_group_master moo_group_master;
/* MOO_ENOMEM. MOO_ESYS: see errno. */
moo_err moo_group_master_open(moo_group_master **master);
/* A frame of the host of that number. MOO_EPROTO: it is none. */
moo_err moo_group_master_take(moo_group_master *master, uint32_t host,
                              const void *bytes, size_t length);
/* The connection with a host is closed: its members count as dead. */
void moo_group_master_lost(moo_group_master *master, uint32_t host);
/* The next frame, and the host that it is for. 0: there is none. */
size_t moo_group_master_next(moo_group_master *master, uint32_t *host,
                             void *bytes);
void moo_group_master_close(moo_group_master *master);

/* Join the group that lives in the segment `fd`, whose agent has that `bell`;
 * both stay the caller's. Waits neither for others nor for the agent: see
 * moo_group_ready. `process_id` identifies this process to the user; min_size
 * must be the same for all; timeout_s bounds each operation; `options` may be
 * NULL. MOO_EINVAL: too small a segment, one that no agent has begun, or an
 * option that makes no sense. MOO_ENOMEM: MOO_GROUP_TEAM_MAX members there.
 * MOO_EVERSION: another version. MOO_ESYS: see errno. */
moo_err moo_group_join(int fd, int bell, uint64_t process_id,
                       uint32_t min_size, double timeout_s,
                       const moo_group_options *options, moo_group **group);

/* Wait until this member is admitted and the group has min_size members.
 * MOO_ETIMEOUT: `seconds` are over, or a signal came; call again. MOO_EINVAL:
 * the members have another min_size. MOO_EMISMATCH: they have another `finishes`,
 * or `backend`. MOO_ENOMEM: they are MOO_GROUP_MAX, or on MOO_GROUP_HOSTS_MAX
 * other hosts. */
moo_err moo_group_ready(moo_group *group, double seconds);

/* Queue a call: `parts` operations, at least one, for as many types of
 * elements. They run one after the other. If one fails, the call ends as that
 * one did, and no member begins the rest. All members agree on the whole call
 * before any part of it runs. The arrays of the requests are copied, the
 * tensors are not: they must live, and the inputs stay unchanged, until *work
 * is done. Calls run in the order queued, each in the thread that waits for
 * it, or in the group's own thread once that was started. Does not block. */
moo_err moo_group_submit(moo_group *group, const moo_request *requests,
                         uint32_t parts, moo_work **work);
/* The same, for callers to whom structures are slow. `numbers` is an array of
 * uint64_t, `bytes` long, with these of each part: kind, dtype, op, root,
 * layout, output_bytes, count, and `count` each of inputs, outputs and
 * bytes. MOO_EINVAL: it does not end there, or has more parts than there are
 * types. */
moo_err moo_group_submit_numbers(moo_group *group, const void *numbers,
                                 size_t bytes, uint32_t parts,
                                 moo_work **work);

/* Run the queue up to `work`, or wait while another thread does. MOO_OK: it
 * is done and *outcome says how it went. MOO_ETIMEOUT: `seconds` are over, or
 * a signal came; it is still queued or under way. */
moo_err moo_work_wait(moo_work *work, double seconds, moo_outcome *outcome);

/* Whether `work` is done. Never blocks. 0 in a forked child. */
int moo_work_done(moo_work *work);

/* The members that took part in work that is done and has succeeded, in rank
 * order. The array must have room for MOO_GROUP_MAX. *size is 0 if it is not
 * done, or has failed. */
void moo_work_members(moo_work *work, moo_member *members, uint32_t *size);

/* Give the caller's hold of `work` back. Work that has not run yet still
 * runs. */
void moo_work_free(moo_work *work);

/* The same for the work in a slot that moo_group_submit may have filled; NULL:
 * nothing. Empties the slot, so that it can be the slot's finalizer. */
void moo_work_clear(moo_work **slot);

/* Start a thread of the group's own, which runs the queue from now on. */
moo_err moo_group_start(moo_group *group);

moo_err moo_group_describe(moo_group *group, moo_group_info *info);

/* The reason why a newcomer is not admitted: the error of the members' last
 * barrier. status MOO_OK: it succeeded, or there was none. */
moo_err moo_group_obstacle(moo_group *group, moo_outcome *out);

/* The members in rank order. The array must have room for MOO_GROUP_MAX, the
 * largest size. */
moo_err moo_group_members(moo_group *group, moo_member *members,
                          uint32_t *size);

/* Leave; the others go on without this member. Waits for the operation under
 * way, if a thread runs it; work queued behind it fails with MOO_ECLOSED, and
 * so does every other call with this group from now on, in any thread. Safe to
 * call twice: the second call may return first. In a forked child: does
 * nothing. */
void moo_group_close(moo_group *group);

/* Close, and free the group. No other thread may use it any more, but its
 * works remain valid. In a forked child: frees, and does nothing else. */
void moo_group_leave(moo_group *group);

/* The same for the group in a slot that moo_group_join may have filled; NULL:
 * nothing. Empties the slot, so that it can be the slot's finalizer. */
void moo_group_clear(moo_group **slot);

/* ---- mail: the ends of the control plane's ZeroMQ sockets ---- */

/*
 * Messages are received, kept and sent here, and not by Python: it may run a
 * signal handler between any two of its instructions, and pyzmq's functions
 * run them as well. If a handler raises there, a message that was received and
 * not yet kept is lost; if it calls us, it finds locks held. No step below can
 * be interrupted in this way, and none keeps a lock from one call to the next.
 */

/* Find libzmq where pyzmq has loaded it; needed before all else here.
 * MOO_ESYS: it is not among this process's libraries. */
moo_err moo_zmq_find(void);

/* One process's inbox: a ROUTER socket, its messages, and the threads that
 * wait for them. A message is a letter: the connection's identity, and the
 * parts after it, of which several are put together.
 *
 * It belongs to the process that opened it. In a forked child a wait ends with
 * MOO_SHUT, a send is refused with MOO_ECLOSED, and all else does nothing: the
 * child's exit changes nothing for its parent. */
typedef struct moo_inbox moo_inbox;

/* `socket`: of libzmq, and used by nobody else until moo_inbox_close. `others`:
 * at most two descriptors whose readability ends a wait, too. `signalled`: the
 * pthread_t that runs signal handlers once its wait has ended; 0: no thread. A
 * signal that comes just before it sleeps does not end the sleep, so its waits
 * end by MOO_LOOK after MOO_SIGNAL_US at the latest. */
moo_err moo_inbox_open(uintptr_t socket, const int *others, int count,
                       uintptr_t signalled, moo_inbox **out);
#define MOO_SIGNAL_US 200000

/* End all waits, drop all letters, and let go of the socket. Waits until no
 * thread polls it, which is at once. A letter that a turn reads stays until the
 * next call with that turn. */
void moo_inbox_close(moo_inbox *inbox);

/* After moo_inbox_close and the last moo_turn_leave. Outboxes may be freed
 * later. */
void moo_inbox_free(moo_inbox *inbox);

/* Something was completed: a leader that nobody tells what was completed looks
 * again. From any thread. */
void moo_inbox_wake(moo_inbox *inbox);

/* A letter from this process to itself; copies data[0, bytes). MOO_ECLOSED. */
moo_err moo_inbox_put(moo_inbox *inbox, const char *data, size_t bytes);

/* For tests: 1 if no thread that sleeps or polls has been woken. */
int moo_inbox_settled(moo_inbox *inbox);

/* Whether some thread leads. A hint: it may change at once. */
int moo_inbox_led(moo_inbox *inbox);

/* Add (1) or remove (-1) an event loop that reads the inbox. Returns a
 * descriptor that is readable when a letter waits and no thread leads. */
int moo_inbox_loops(moo_inbox *inbox, int change);

/* The ways in which a wait ends. MOO_MAIL: `data`, `bytes` of the turn are the
 * first letter; call moo_turn_handled once it is handled. MOO_OTHER: one of
 * the `others` is readable. MOO_LOOK: something may be complete, or a signal
 * came. MOO_LED: another thread leads. MOO_LATE: the time is over.
 * MOO_SHUT. */
#define MOO_MAIL 1
#define MOO_OTHER 2
#define MOO_MAIL_AND_OTHER 3
#define MOO_LOOK 4
#define MOO_LED 5
#define MOO_LATE 6
#define MOO_SHUT 7

/* One wait of one thread. Its owner zeroes it, and always ends it by
 * moo_turn_leave; then it may wait again without being zeroed. */
typedef struct moo_turn {
    const char *data; /* until the next call with this turn */
    uint64_t bytes;
    uint64_t serial;
    uint64_t leads; /* 1: this turn leads since its last wait, else 0 */
    uint64_t rest[8];
} moo_turn;

/* Wait `timeout_us`, -1 for ever. Blocks; a signal ends it. A leader sends what
 * waits in outboxes before it sleeps. If something was completed after the
 * turn's last wait, this one ends by MOO_LOOK, if it would lead. Letters come
 * in their order; all threads get the same one until it is handled. `woken`:
 * somebody calls moo_turn_wake when the result of this turn is there, so it
 * may sleep while another thread leads; otherwise it ends by MOO_LED. */
int moo_turn_wait(moo_inbox *inbox, moo_turn *turn, int64_t timeout_us,
                  int woken);

/* The letter that this turn read was handled; 1 if the turn has the next one
 * now. Other turns look again, as by moo_inbox_wake, because handling it may
 * have completed something. */
int moo_turn_handled(moo_turn *turn);

/* The address of the serial number of the letter that was handled last, or of
 * 0. Letters are handled in order, so one with a higher number is not handled
 * yet. It may be read at any time while the inbox exists. */
const uint64_t *moo_inbox_taken(const moo_inbox *inbox);

/* From any thread: end this turn's wait, or else its next one, by MOO_LOOK. */
void moo_turn_wake(moo_turn *turn);

/* The end of a turn; nothing happens if it has not begun, or was left. */
void moo_turn_leave(moo_turn *turn);

/* The way out to one process. Records are sent at once, or gathered into one
 * message. From any thread; no call blocks. */
typedef struct moo_outbox moo_outbox;

/* `prefix` begins each message. `socket`: a DEALER of libzmq. */
moo_err moo_outbox_open(moo_inbox *inbox, uintptr_t socket, const char *prefix,
                        size_t prefix_bytes, moo_outbox **out);

/* Send a record now, behind those that wait. MOO_ENOMEM: it was not sent. */
moo_err moo_outbox_send(moo_outbox *outbox, const char *record, size_t bytes);

/* Keep a record for the next moo_inbox_flush (*waits = 1). If many wait
 * already, send all of them now (*waits = 0). */
moo_err moo_outbox_queue(moo_outbox *outbox, const char *record, size_t bytes,
                         int *waits);

/* Let go of the socket, and keep all records from here on, those that wait
 * included, until moo_outbox_connect. */
void moo_outbox_hold(moo_outbox *outbox);

/* Of an outbox that is held: send what it has kept, and all that follows, over
 * `socket`, a DEALER. `prefix`: as long as the first one. A message has parts
 * of at most `part_bytes`; 0: it has one part. MOO_ECLOSED: it is not held,
 * because it was closed or is connected; MOO_ENOMEM: it is held still. In both
 * cases it does not use the socket. MOO_ESYS: the socket took nothing; what was
 * kept is dropped. */
moo_err moo_outbox_connect(moo_outbox *outbox, uintptr_t socket,
                           const char *prefix, size_t part_bytes);

/* Of an outbox that is held: keep a record before all others that it has kept.
 * MOO_ECLOSED: it is not held; MOO_ENOMEM. */
moo_err moo_outbox_lead(moo_outbox *outbox, const char *record, size_t bytes);

/* Drop what an outbox that is held has kept. */
void moo_outbox_drop(moo_outbox *outbox);

/* The number of records that are kept in an outbox that is held. */
size_t moo_outbox_held(moo_outbox *outbox);

/* Send the waiting records of all outboxes of an inbox. */
void moo_inbox_flush(moo_inbox *inbox);

/* Let go of the socket. Waiting and later records are dropped. */
void moo_outbox_close(moo_outbox *outbox);

/* Close it, and free it. */
void moo_outbox_free(moo_outbox *outbox);

/* cdef: end */

#endif
