/*
 * libtrapeze: messages with payloads that land where the receiver wants them, and calls, over shared memory and TCP.
 * Made by `cargo xtask header` from crates/capi/src: change it there.
 */

#ifndef TRAPEZE_H
#define TRAPEZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// Most bytes of a call's or an answer's body.
#define TPZ_BODY_BYTES 64

// The first channel for services of your own, and the last.
#define TPZ_CHANNEL_FIRST 16

// See TPZ_CHANNEL_FIRST.
#define TPZ_CHANNEL_LAST 31

// Of tpz_call_t: not to be executed twice, whatever the network does. For everything that changes something.
#define TPZ_ONCE 1

// Of tpz_options_t: TCP without encryption, open to any peer. Only for networks without other users.
#define TPZ_INSECURE 1

// How to wait: spin as long as that pays, then sleep.
#define TPZ_WAIT_ADAPTIVE 0

// Never sleep: the lowest latency, and a processor for it.
#define TPZ_WAIT_SPIN 1

// Sleep at once.
#define TPZ_WAIT_BLOCK 2

// Done. The other codes are the error numbers of Linux with these names, so that strerror(3) knows them too; an error
// of the system has the number that the system gave.
#define TPZ_OK 0

// Another thread than the one that opened the endpoint.
#define TPZ_EPERM 1

// No peer has that number.
#define TPZ_ENOENT 2

// The system failed without saying how.
#define TPZ_EIO 5

// The endpoint is closed.
#define TPZ_EBADF 9

// Nothing is there, or no entry of the ring is free: poll and ask again.
#define TPZ_EAGAIN 11

// The payload memory is used up: free frames, or open the endpoint with more.
#define TPZ_ENOMEM 12

// The system does not let the program serve its own page faults, or the space is another endpoint's.
#define TPZ_EACCES 13

// In use: a frame with several holders is to be written, a channel is served already, or the endpoint is to be closed
// from a callback.
#define TPZ_EBUSY 16

// A version as new as this one is known: write a newer one.
#define TPZ_EEXIST 17

// An argument that cannot be; tpz_last_error() says which.
#define TPZ_EINVAL 22

// Too few others have room for the page.
#define TPZ_ENOSPC 28

// The system has no such call, or one that lacks what is needed.
#define TPZ_ENOSYS 38

// No copy of the page is left.
#define TPZ_ENODATA 61

// The peer broke the protocol, as by more data than was asked for.
#define TPZ_EPROTO 71

// Longer than a message may be.
#define TPZ_EMSGSIZE 90

// Too many calls are open.
#define TPZ_ENOBUFS 105

// The time is up. Of a call: it may have been executed.
#define TPZ_ETIMEDOUT 110

// The channel is not served at the peer.
#define TPZ_ECONNREFUSED 111

// The peer restarted, or was away for 10 s. A call may have been executed.
#define TPZ_EHOSTDOWN 112

// The page's space was freed.
#define TPZ_ESTALE 116

// The endpoint was closed before the call ended.
#define TPZ_ECANCELED 125

// A fault of the library itself. The endpoint takes no more calls but tpz_close().
#define TPZ_EINTERNAL 1000

// Most bytes of a frame, and of a payload: 1 MiB.
#define TPZ_PAYLOAD_BYTES (1 << 20)

// Of tpz_page_op_t: two other endpoints have the page before it may leave this one.
#define TPZ_MIRRORED 0

// One other endpoint has it.
#define TPZ_VOLATILE 1

// Of tpz_page_op_t: the page was in this endpoint's memory.
#define TPZ_FROM_HERE 0

// It was in another one's.
#define TPZ_FROM_PEER 1

// Bytes of content of a message: 80 of the control message's 128.
#define TPZ_MESSAGE_BYTES 80

// Of tpz_region_advise(): it will be used soon, fetch it now.
#define TPZ_WILL_NEED 0

// It will not be used soon: it leaves first when room is needed.
#define TPZ_COLD 1

// It leaves memory now.
#define TPZ_PAGE_OUT 2

// Its content is not needed any more: it reads as zeros from now on.
#define TPZ_FREE 3

// Holders that a region may have.
#define TPZ_HOLDERS 16

// Statuses of answers lie below this; the rest is NetRPC's own.
#define TPZ_STATUS_RESERVED 65280

// An endpoint: a pair of message rings, payload memory, and links to peers. It belongs to the thread that opened it: a
// call from another one fails (TPZ_EPERM), but for tpz_wake(). A process may have any number, one or more for each
// thread. Nothing runs in the background: messages move while tpz_poll(), tpz_call_wait() or a tpz_spinwait_ function
// runs. Do not use it in the child of a fork.
typedef struct tpz_ep_t tpz_ep_t;

// A payload frame: some bytes of an endpoint's payload memory, in one piece and aligned to a page. Peers of this
// machine read it where it is; nothing is copied on the way out.
//
// A frame belongs to the side that was last given it: to the program after tpz_frame_alloc(), to the message after
// tpz_attach_sendmsg(), to the call after tpz_call(), to the program again when a completion or a reply brings it.
typedef struct tpz_frame_t tpz_frame_t;

// A message entry that the program holds: of the send ring from tpz_get_sendmsg(), of the receive ring from
// tpz_get_rcvmsg(), until it is released (`msg_t` of HPDC'97).
typedef struct tpz_msg_t tpz_msg_t;

// A region. All threads may use its memory and its functions, but tpz_region_unmap().
typedef struct tpz_region_t tpz_region_t;

// A request that the program is to answer with tpz_reply(), in the handler or later; until then it counts against the
// 128 that each channel gives out.
typedef struct tpz_request_t tpz_request_t;

// A call: `tpz_call_t call = {.size = sizeof call, .channel = TPZ_CHANNEL_FIRST, .op = 1};`
typedef struct {
  // sizeof(tpz_call_t).
  uint32_t size;
  // The node that is to serve it; 0 is the peer that `connect` named.
  uint16_t to;
  // The service, TPZ_CHANNEL_FIRST to TPZ_CHANNEL_LAST.
  uint16_t channel;
  // The operation, in the service's numbering.
  uint16_t op;
  // 0 or TPZ_ONCE.
  uint16_t flags;
  // Milliseconds to wait for the reply; 0 is 30 s.
  uint32_t timeout_ms;
  // Arguments, `body_bytes` bytes, at most TPZ_BODY_BYTES. Copied.
  const void *body;
  // See `body`.
  size_t body_bytes;
  // Data to send, or NULL. The call's until its reply.
  tpz_frame_t *data;
  // Bytes of `data` to send; 0 is all of them.
  size_t data_bytes;
  // Where the reply's data lands, or NULL: then a reply with data fails. The call's until its reply.
  tpz_frame_t *into;
} tpz_call_t;

// Result of a call.
typedef struct {
  // TPZ_OK when there is a reply. Otherwise why there is none: TPZ_ETIMEDOUT, TPZ_EHOSTDOWN (both: it may have been
  // executed), TPZ_ECONNREFUSED, TPZ_ENOBUFS (both: it was not), TPZ_EPROTO, TPZ_ECANCELED.
  int code;
  // The service's verdict, 0 for success, by convention an error number.
  uint16_t status;
  // Results.
  uint8_t body[TPZ_BODY_BYTES];
  // Bytes of data in `into`.
  size_t bytes;
  // The call's `data`, the program's again.
  tpz_frame_t *data;
  // The call's `into`, the program's again. NULL when there is no reply: the memory went back to the endpoint.
  tpz_frame_t *into;
} tpz_reply_t;

// Called once for every call that tpz_call() took; `reply` is there during the callback only, its frames stay.
typedef void (*tpz_reply_fn_t)(const tpz_reply_t *reply, void *arg);

// Options of an endpoint in a cluster: `tpz_cluster_options_t options = {.size = sizeof options, .cluster =
// "tcp:10.0.0.1:7400", .lend_bytes = 64 << 20, .listen = "10.0.0.9:7500", .key = key};`
typedef struct {
  // sizeof(tpz_cluster_options_t).
  uint32_t size;
  // 0 or TPZ_INSECURE.
  uint16_t flags;
  // 0.
  uint16_t reserved;
  // The directory of a cluster on this machine (`trapeze up`), or the manager's address.
  const char *cluster;
  // HOST:PORT at which members on other machines reach the endpoint; NULL where all are on this one.
  const char *listen;
  // Bytes that it lends, 16 MiB or more; others keep pages there as long as it is polled.
  uint64_t lend_bytes;
  // Bytes of payload memory beside them; 0 is 64 MiB.
  uint64_t memory_bytes;
  // For TCP: the 32 bytes of the cluster's key, or NULL.
  const uint8_t *key;
  // TPZ_WAIT_SPIN or TPZ_WAIT_BLOCK.
  uint32_t wait;
  // 0.
  uint32_t reserved_too;
} tpz_cluster_options_t;

// Options of an endpoint: `tpz_options_t options = {.size = sizeof options, .node = 1, .listen = "..."};`
typedef struct {
  // sizeof(tpz_options_t).
  uint32_t size;
  // The endpoint's number among its peers, 1 to 65535; 0 to be given one by the peer that `connect` names.
  uint16_t node;
  // 0 or TPZ_INSECURE.
  uint16_t flags;
  // Where to listen, or NULL: "unix:PATH" (shared memory), "adapter:PATH" (adapters over it), "tcp:HOST:PORT" (port
  // 0: any free one).
  const char *listen;
  // The address to connect to at once, or NULL.
  const char *connect;
  // Bytes of payload memory; 0 is 64 MiB. Only what is used costs memory.
  uint64_t memory_bytes;
  // For TCP: 32 secret bytes that both sides know, or NULL.
  const uint8_t *key;
  // TPZ_WAIT_ADAPTIVE, TPZ_WAIT_SPIN or TPZ_WAIT_BLOCK.
  uint32_t wait;
  // 0.
  uint32_t reserved;
} tpz_options_t;

// Counters of an endpoint since it was opened.
typedef struct {
  // Messages handed to the link, those of calls included.
  uint64_t sent;
  // Messages that came, those of calls included.
  uint64_t received;
  // Messages that are no calls and that were dropped because tpz_get_rcvmsg() was not called in time.
  uint64_t dropped;
  // Payloads discarded: the token was stale or its frame too small, no memory was free, or the checksum did not fit.
  uint64_t discarded;
  // Pages of 4096 bytes of payload memory that are free.
  uint64_t free_pages;
  // Times the thread slept.
  uint64_t sleeps;
} tpz_counters_t;

// An endpoint that takes part in network memory.
typedef struct {
  // Its tpz_incarnation().
  uint64_t incarnation;
  // Its part of the directory relative to the others', say MiB of its memory; 0 is none.
  uint32_t weight;
  // Its tpz_self().
  uint16_t node;
  // 0.
  uint16_t reserved;
} tpz_member_t;

// A page to get, put or flush, and what came of it.
typedef struct {
  // The page's space: tpz_own_space() or tpz_shared_space().
  uint64_t space;
  // Its number in the space.
  uint64_t index;
  // To get: the oldest version that will do, 0 for any; the version that came. To put: the new version, newer than
  // any before, or 0 for the one after the newest that is known; the version that it is now.
  uint64_t version;
  // To get: the page's bytes, which are read-only; yours to free. To put: what the page is to be; it stays yours,
  // to be freed when you like, but is not to be written any more.
  tpz_frame_t *frame;
  // To get: bytes of a page of that space. To put: bytes of `frame`, 0 is all of it. 65536 at most.
  uint32_t bytes;
  // To put: TPZ_MIRRORED or TPZ_VOLATILE.
  uint32_t durability;
  // Got: TPZ_FROM_HERE or TPZ_FROM_PEER.
  uint32_t source;
  // Result: TPZ_OK; TPZ_ENOENT (no node knows the page), TPZ_ENODATA (the version is lost with the nodes that had
  // it), TPZ_ESTALE (its space was freed), TPZ_EEXIST (a version as new is known), TPZ_EACCES (the space is
  // another's), TPZ_ENOSPC, TPZ_ENOMEM (no room), TPZ_EAGAIN (the node that has or knows it
  // does not answer), TPZ_ECANCELED.
  int code;
} tpz_page_op_t;

// Called when a batch has ended, with TPZ_OK or the code of the first page in it that failed.
typedef void (*tpz_done_fn_t)(int code, void *arg);

// The right to put one payload into a frame that its receiver chose (the payload token of USENIX'98 section 3.2). It
// is plain data: send it in a message's content. It is good for one delivery. All zero is no token.
typedef struct {
  // The secret part.
  uint64_t key;
  // The table's entry.
  uint64_t index;
} tpz_token_t;

// Called with a frame that has been sent, which is the program's again, and the `arg` of tpz_attach_sendmsg().
typedef void (*tpz_io_completion_t)(tpz_frame_t *frame, void *arg);

// How a region is made: `tpz_region_options_t options = {.size = sizeof options, .bytes = 1 << 30, .frames = 65536,
// .file = "/var/tmp/region"};`
typedef struct {
  // sizeof(tpz_region_options_t).
  uint32_t size;
  // Bytes of a page, a power of two from 4096 to 65536; 0 is 4096.
  uint32_t page_bytes;
  // Bytes of the region, whole pages.
  uint64_t bytes;
  // Pages that it may have in memory, 64 or more; a tenth of them is on its way out.
  uint64_t frames;
  // The file that the other pages are in, made and grown where it is shorter; or NULL. Either this or holders.
  const char *file;
  // Addresses of endpoints that keep the other pages in their memory (tpz_hold_pages), `holders_count` of them.
  const char *const *holders;
  // See `holders`; at most TPZ_HOLDERS.
  uint32_t holders_count;
  // Holders that have a page before it leaves this memory; 0 is two, or one where there is one.
  uint32_t copies;
  // Threads that serve page faults: system calls on the region work then, and it needs root or a privilege. 0: the
  // faulting thread itself, which every user may and is faster; use tpz_read() and its like for system calls.
  uint32_t handlers;
  // Threads that may fault at the same time; 0 is 8.
  uint32_t contexts;
  // Milliseconds that a fault waits for a file or holders that do not answer; 0 is 30 s.
  uint32_t patience_ms;
  // How a fault waits for a holder's answer: TPZ_WAIT_...
  uint32_t wait;
  // For holders at TCP addresses: 32 secret bytes, or NULL.
  const uint8_t *key;
  // Instead of holders, a cluster whose machines lend memory: its directory on this machine, or its manager's
  // address; or NULL. Each page is kept by two of them.
  const char *cluster;
  // 0 or TPZ_INSECURE.
  uint16_t flags;
  // 0.
  uint16_t reserved[3];
} tpz_region_options_t;

// Counters of a region, in pages.
typedef struct {
  // Faults of the program.
  uint64_t faults;
  // Fetched from the file or the holders.
  uint64_t fetched;
  // Given to them.
  uint64_t stored;
  // Moved out of memory, or on its way.
  uint64_t evicted;
  // Fetched, and not the bytes that were stored.
  uint64_t damaged;
  // Of which no copy was left.
  uint64_t lost;
} tpz_region_counters_t;

// Called for every request of a channel; the request is the handler's to answer.
typedef void (*tpz_handler_fn_t)(tpz_request_t *request, void *arg);

// A request's source and arguments.
typedef struct {
  // The caller.
  uint16_t source;
  // The service.
  uint16_t channel;
  // The operation.
  uint16_t op;
  // 0 or TPZ_ONCE.
  uint16_t flags;
  // Arguments; what the caller did not fill is zero.
  uint8_t body[TPZ_BODY_BYTES];
  // Bytes of data, for tpz_request_detach().
  size_t bytes;
} tpz_request_info_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts a call and returns at once. `callback` is called with what it came to and `arg`, once, from tpz_poll() or
// tpz_close(). When this fails nothing was started and the frames stay the program's.
//
// Needs:
// `ep` is open; `call` points to a call whose body and frames are there; `callback` may be called with `arg` until
// the endpoint is closed.
int tpz_call(const tpz_ep_t *ep,
             const tpz_call_t *call,
             tpz_reply_fn_t callback,
             void *arg);

// Makes a call and waits for what it comes to, which is written to `*reply`. The endpoint moves meanwhile, but no
// callback runs: what they are to be told waits for tpz_poll(). Returns TPZ_OK when there is a reply, whose `status`
// is the service's, otherwise `reply->code`. When arguments are wrong, `*reply` is not written and the frames stay
// the program's.
//
// Needs:
// `ep` is open; `call` points to a call whose body and frames are there; `reply` can be written.
int tpz_call_wait(const tpz_ep_t *ep,
                  const tpz_call_t *call,
                  tpz_reply_t *reply);

// Joins a cluster as an endpoint of this thread, which is written to `*ep`: it lends memory, gets and puts pages as
// tpz_memory_start() lets it, and goes by the cluster's own view of who is up. tpz_close() says good-bye; what others
// keep for it in tpz_own_space() is of no use then.
//
// Needs:
// `options` points to options whose texts end with a zero and whose key has 32 bytes; `ep` can be written.
int tpz_join(const tpz_cluster_options_t *options,
             tpz_ep_t **ep);

// Opens an endpoint for this thread: connects, if `connect` is set, then listens, if `listen` is. The endpoint is
// written to `*ep`.
//
// Needs:
// `options` points to options whose texts end with a zero and whose key has 32 bytes; `ep` can be written.
int tpz_open(const tpz_options_t *options,
             tpz_ep_t **ep);

// Closes an endpoint: what was posted leaves first, for 10 s at most, then every call that has not ended ends with
// TPZ_ECANCELED. Frames, messages and requests stay to be freed. Not from a callback (TPZ_EBUSY). NULL is nothing.
//
// Needs:
// `ep` is NULL or open, and is not used from now on.
int tpz_close(tpz_ep_t *ep);

// The endpoint's own number; 0 only for NULL.
//
// Needs:
// `ep` is open.
uint16_t tpz_self(const tpz_ep_t *ep);

// The number of the peer that `connect` named; 0 when there is none.
//
// Needs:
// `ep` is open.
uint16_t tpz_peer(const tpz_ep_t *ep);

// Where the endpoint listens, with the port that it really got; "" when it does not. Until tpz_close().
//
// Needs:
// `ep` is open.
const char *tpz_address(const tpz_ep_t *ep);

// From now on the peer with this number is found at this address. A connection is made when something is sent to it.
//
// Needs:
// `ep` is open, `address` ends with a zero.
int tpz_add_peer(const tpz_ep_t *ep,
                 uint16_t node,
                 const char *address);

// Moves messages, runs the callbacks of what has happened, and returns as soon as something has: a callback ran, a
// message waits for tpz_get_rcvmsg(), or another thread called tpz_wake(). Otherwise waits for `timeout_ms`
// milliseconds, then returns TPZ_ETIMEDOUT; 0 only looks, -1 waits for ever. Posted messages leave in here.
//
// Needs:
// `ep` is open.
int tpz_poll(const tpz_ep_t *ep,
             int timeout_ms);

// Has tpz_poll() return, now or the next time. From any thread, as long as the endpoint is open.
//
// Needs:
// `ep` is NULL or open, and no thread closes it meanwhile.
int tpz_wake(const tpz_ep_t *ep);

// Writes the counters to `*counters`.
//
// Needs:
// `ep` is open, `counters` can be written.
int tpz_counters(const tpz_ep_t *ep, tpz_counters_t *counters);

// The meaning of an error number. Never NULL; the text is there for ever.
const char *tpz_strerror(int code);

// The number of this thread's last error: why a function that returns a pointer returned NULL. TPZ_OK when there was
// none.
int tpz_errno(void);

// This thread's last error in words: in which function, what, and what to do. Never NULL; the text is there until the
// thread's next error.
const char *tpz_last_error(void);

// The number of this library's release, as text. The text is there for ever.
const char *tpz_version(void);

// A frame of `bytes` bytes, 1 to TPZ_PAYLOAD_BYTES, of the endpoint's payload memory, contents undefined. It takes
// whole pages of 4096. NULL when there is none (TPZ_ENOMEM).
//
// Needs:
// `ep` is open.
tpz_frame_t *tpz_frame_alloc(const tpz_ep_t *ep,
                             size_t bytes);

// The frame's bytes, for reading, until the frame is given away or freed. NULL only for NULL.
//
// Needs:
// `frame` is the caller's.
const void *tpz_frame_data(tpz_frame_t *frame);

// The frame's bytes, for writing, until the frame is given away, shared or freed. NULL when others hold the bytes too
// (TPZ_EBUSY): a message that is still under way, or a handle of tpz_frame_dup().
//
// Needs:
// `frame` is the caller's.
void *tpz_frame_mut(tpz_frame_t *frame);

// How many bytes the frame has; 0 only for NULL.
//
// Needs:
// `frame` is the caller's.
size_t tpz_frame_bytes(tpz_frame_t *frame);

// Another handle to the same bytes, which are read-only as long as there is more than one: to send what is kept. NULL
// only for NULL.
//
// Needs:
// `frame` is the caller's.
tpz_frame_t *tpz_frame_dup(tpz_frame_t *frame);

// Gives the handle back, and with the last one the memory. NULL is nothing. Also after tpz_close().
//
// Needs:
// `frame` is NULL or the caller's, who does not use it from now on.
int tpz_frame_free(tpz_frame_t *frame);

// Has the endpoint take part in network memory with `bytes` bytes of its payload memory, at most half of it. It keeps
// to itself until tpz_set_view(). Others find their pages here as long as it is polled. TPZ_EBUSY when it takes part
// already.
//
// Needs:
// `ep` is open.
int tpz_memory_start(const tpz_ep_t *ep,
                     uint64_t bytes);

// Which incarnation of its number the endpoint is in, for tpz_member_t; 0 only for NULL.
//
// Needs:
// `ep` is open.
uint64_t tpz_incarnation(const tpz_ep_t *ep);

// Sets the members of network memory, this endpoint included. `number` grows with every change, and all are told the
// same. Addresses of the others are for tpz_add_peer(). The program has to know which of them are up: pages of a
// member that is not in the view any more are mirrored again from where they still are.
//
// Needs:
// `ep` is open, `members` has `count` members.
int tpz_set_view(const tpz_ep_t *ep,
                 uint64_t number,
                 const tpz_member_t *members,
                 size_t count);

// The number of a space that this endpoint alone writes; of `serial` 46 bits count. A page of it is found without
// asking a directory. 0 only for NULL.
//
// Needs:
// `ep` is open.
uint64_t tpz_own_space(const tpz_ep_t *ep,
                       uint64_t serial);

// The number of a space that all read and write, one writer of a page at a time; of `serial` 63 bits count.
uint64_t tpz_shared_space(uint64_t serial);

// Gets `count` pages, each in the version that is asked for or a newer one, from wherever they are. Without a
// callback it waits, and no callback runs meanwhile; otherwise `ops` must stay until the callback. Each page's `code`
// says what came of it; what is returned is the first that failed. Where an argument is wrong (TPZ_EINVAL), nothing
// was started.
//
// Needs:
// `ep` is open; `ops` has `count` pages, until the callback, which may be called with `arg`.
int tpz_get(const tpz_ep_t *ep,
            tpz_page_op_t *ops,
            size_t count,
            tpz_done_fn_t callback,
            void *arg);

// Writes `count` pages; as tpz_get(). They are in this endpoint's memory then, and others find them there;
// tpz_flush() makes them as durable as they are to be, and until then they are lost with this endpoint.
//
// Needs:
// `ep` is open; `ops` has `count` pages with frames of the caller's, until the callback, which may be called with
// `arg`.
int tpz_put(const tpz_ep_t *ep,
            tpz_page_op_t *ops,
            size_t count,
            tpz_done_fn_t callback,
            void *arg);

// Makes `count` pages that were put as durable as was said; as tpz_get(). TPZ_ENOSPC when too few others take them, or
// the log's disk is full or fails; the pages stay what they are, and may be flushed again.
//
// Needs:
// `ep` is open; `ops` has `count` pages, until the callback, which may be called with `arg`.
int tpz_flush(const tpz_ep_t *ep,
              tpz_page_op_t *ops,
              size_t count,
              tpz_done_fn_t callback,
              void *arg);

// Forgets all pages of a space on every member, for ever: its number is not used again. Without a callback it waits.
//
// Needs:
// `ep` is open; `callback` may be called with `arg`.
int tpz_free_space(const tpz_ep_t *ep,
                   uint64_t space,
                   tpz_done_fn_t callback,
                   void *arg);

// Takes an entry of the send ring for an outgoing message. NULL when none is free (TPZ_EAGAIN): poll, and ask again.
// Never waits. Completions of messages that have left run first.
//
// Needs:
// `ep` is open.
tpz_msg_t *tpz_get_sendmsg(const tpz_ep_t *ep);

// Takes the oldest message that has come. NULL when there is none (TPZ_EAGAIN). Never waits, and does not move
// messages: tpz_poll() does. The program may hold and leave waiting 256 messages at most; what comes beyond that is
// dropped (tpz_counters_t.dropped), as HPDC'97's adapter drops what its host does not keep up with.
//
// Needs:
// `ep` is open.
tpz_msg_t *tpz_get_rcvmsg(const tpz_ep_t *ep);

// Polls until an entry of the send ring is free. NULL only for an error.
//
// Needs:
// `ep` is open.
tpz_msg_t *tpz_spinwait_get_sendmsg(const tpz_ep_t *ep);

// Polls until a message has come. Callbacks do not run meanwhile. NULL only for an error.
//
// Needs:
// `ep` is open.
tpz_msg_t *tpz_spinwait_get_rcvmsg(const tpz_ep_t *ep);

// The message's content, TPZ_MESSAGE_BYTES bytes, until it is released: to be written before it is sent (zero at
// first), to be read after it came. Bytes travel as they are.
//
// Needs:
// `msg` is the caller's.
void *tpz_msg_data(tpz_msg_t *msg);

// The receiver of the message. Without it: the peer that `connect` named.
//
// Needs:
// `msg` is the caller's.
int tpz_set_destination(tpz_msg_t *msg, uint16_t node);

// The sender of a received message; 0 only for an error.
//
// Needs:
// `msg` is the caller's.
uint16_t tpz_get_source(tpz_msg_t *msg);

// Has the payload land in the frame that the destination armed this token with, or nowhere.
//
// Needs:
// `msg` is the caller's.
int tpz_set_token(tpz_msg_t *msg, tpz_token_t token);

// Attaches a frame to an outgoing message as (the next part of) its payload; 1 MiB in all. The frame is the message's
// now. When it has been sent, `completion` is called with the frame and `arg`, by tpz_poll(),
// tpz_check_xmit_complete(), tpz_get_sendmsg() or tpz_close(); without a completion the frame is freed then.
//
// Needs:
// `msg` and `frame` are the caller's; `completion` may be called with `arg` by then.
int tpz_attach_sendmsg(tpz_msg_t *msg,
                       tpz_frame_t *frame,
                       tpz_io_completion_t completion,
                       void *arg);

// Takes the first frame off an outgoing message that has not been released; it is the program's again. NULL when there
// is none (TPZ_EAGAIN).
//
// Needs:
// `msg` is the caller's.
tpz_frame_t *tpz_detach_sendmsg(tpz_msg_t *msg);

// Sends only the first `bytes` bytes of what is attached.
//
// Needs:
// `msg` is the caller's.
int tpz_set_payload_len(tpz_msg_t *msg, int bytes);

// Bytes of payload that came with a received message and are in its frame. 0 for a message without payload, for one
// whose payload was discarded (tpz_get_announced_len() tells them apart), and for an error.
//
// Needs:
// `msg` is the caller's.
int tpz_get_payload_len(tpz_msg_t *msg);

// Bytes of payload that the sender of a received message attached: more than tpz_get_payload_len() when they were
// discarded, because the token was stale or its frame too small, no memory was free, or the checksum did not fit.
//
// Needs:
// `msg` is the caller's.
int tpz_get_announced_len(tpz_msg_t *msg);

// Takes the frame with the payload off a received message; it is the program's now. It is the one that the token was
// armed with, or one of the endpoint's memory. NULL when the message has none (TPZ_EAGAIN).
//
// Needs:
// `msg` is the caller's.
tpz_frame_t *tpz_detach_rcvmsg(tpz_msg_t *msg);

// Gives the receive entry a frame for the payload of a message to come: the frame goes to the endpoint's payload
// memory, and the entry may take as many pages from there. With NULL the entry's payloads are discarded, unless they
// come by a token. At first every entry may take 1 MiB.
//
// Needs:
// `msg` is the caller's, `frame` NULL or the caller's.
int tpz_attach_rcvmsg(tpz_msg_t *msg,
                      tpz_frame_t *frame);

// Marks an outgoing message so that releasing it sends nothing.
//
// Needs:
// `msg` is the caller's.
int tpz_senderr(tpz_msg_t *msg);

// Sends the message; the entry is the ring's again. It leaves with the next tpz_poll(). Delivery is best effort: what
// a broken connection held is lost. When there is no destination (TPZ_EINVAL) the message stays the program's.
//
// Needs:
// `msg` is the caller's, who does not use it from now on if this succeeds.
int tpz_release_sendmsg(tpz_msg_t *msg);

// Gives a received message's entry back to the ring, with its frame if that was not detached.
//
// Needs:
// `msg` is the caller's, who does not use it from now on if this succeeds.
int tpz_release_rcvmsg(tpz_msg_t *msg);

// Releases a message of either ring, the name of HPDC'97's text.
//
// Needs:
// `msg` is the caller's, who does not use it from now on if this succeeds.
int tpz_release_msg(tpz_msg_t *msg);

// Calls the completions of messages that have left (HPDC'97 Table 1). tpz_poll() does so too.
//
// Needs:
// `ep` is open.
int tpz_check_xmit_complete(const tpz_ep_t *ep);

// Maps a region, which is written to `*region`. TPZ_EACCES or TPZ_ENOSYS where the system does not let programs serve
// their page faults: tpz_last_error() says what to set.
//
// Needs:
// `options` points to options whose texts end with a zero and whose key has 32 bytes; `region` can be written.
int tpz_region_map(const tpz_region_options_t *options,
                   tpz_region_t **region);

// Unmaps a region. Its file stays as it is; call tpz_region_sync() before if the file is to have everything. Pages at
// its holders are of no use any more. NULL is nothing.
//
// Needs:
// `region` is NULL or mapped; no thread uses it or its memory from now on.
int tpz_region_unmap(tpz_region_t *region);

// The region's first byte. Its memory is read and written as any other; a page of which no copy is left is a SIGBUS.
//
// Needs:
// `region` is mapped.
void *tpz_region_data(const tpz_region_t *region);

// How many bytes the region has; 0 only for NULL.
//
// Needs:
// `region` is mapped.
size_t tpz_region_bytes(const tpz_region_t *region);

// Has the stretch's pages in memory, to be written if `writes`, as far as the frames go. TPZ_ENODATA when no copy of a
// page is left.
//
// Needs:
// `region` is mapped.
int tpz_region_touch(const tpz_region_t *region,
                     size_t offset,
                     size_t bytes,
                     bool writes);

// As tpz_region_touch(), and the pages stay until they are unpinned as often. At most three quarters of the frames can
// be pinned (TPZ_ENOMEM).
//
// Needs:
// `region` is mapped.
int tpz_region_pin(const tpz_region_t *region,
                   size_t offset,
                   size_t bytes);

// Undoes one tpz_region_pin() of the same stretch.
//
// Needs:
// `region` is mapped, and the stretch was pinned.
int tpz_region_unpin(const tpz_region_t *region, size_t offset, size_t bytes);

// Says something about the stretch: TPZ_WILL_NEED, TPZ_COLD, TPZ_PAGE_OUT or TPZ_FREE, the last of whole pages only.
//
// Needs:
// `region` is mapped.
int tpz_region_advise(const tpz_region_t *region,
                      size_t offset,
                      size_t bytes,
                      uint32_t advice);

// Gives every page of the stretch that has changed to the file or the holders.
//
// Needs:
// `region` is mapped.
int tpz_region_flush(const tpz_region_t *region, size_t offset, size_t bytes);

// As tpz_region_flush() of everything, and on stable storage, if it is in a file.
//
// Needs:
// `region` is mapped.
int tpz_region_sync(const tpz_region_t *region);

// Writes the counters to `*counters`.
//
// Needs:
// `region` is mapped, `counters` can be written.
int tpz_region_counters(const tpz_region_t *region, tpz_region_counters_t *counters);

// From now on the endpoint keeps pages for regions of others (their `holders`), as much as fits into `pages` pages of
// 4096 bytes of its payload memory, as long as it is polled. These pages are gone with it. TPZ_EBUSY when it does so
// already.
//
// Needs:
// `ep` is open.
int tpz_hold_pages(const tpz_ep_t *ep,
                   uint32_t pages);

// From now on requests for `channel`, TPZ_CHANNEL_FIRST to TPZ_CHANNEL_LAST, are given to `handler` with `arg`, from
// tpz_poll(). The handler may answer at once or keep the request and answer later. TPZ_EBUSY when the channel is
// served already.
//
// Needs:
// `ep` is open; `handler` may be called with `arg` until the endpoint is closed.
int tpz_serve(const tpz_ep_t *ep,
              uint16_t channel,
              tpz_handler_fn_t handler,
              void *arg);

// Writes what the request asks to `*info`.
//
// Needs:
// `request` is the caller's, `info` can be written.
int tpz_request_info(tpz_request_t *request, tpz_request_info_t *info);

// Takes the frame with the request's data; it is the program's now, and counts against the endpoint's payload memory
// as long as it is kept. NULL when the request has none (TPZ_EAGAIN). Its length is the data's, rounded up at most to
// a page.
//
// Needs:
// `request` is the caller's.
tpz_frame_t *tpz_request_detach(tpz_request_t *request);

// Answers a request; it is gone then. `status` is 0 or, by convention, an error number, below TPZ_STATUS_RESERVED.
// `body` are results, at most TPZ_BODY_BYTES bytes, copied. `data`, or NULL, is the answer's data, the first
// `data_bytes` bytes of it or for 0 all; the frame is the answer's now (keep a handle of tpz_frame_dup()). It lands
// in the caller's `into`. When this fails for an argument, request and frame stay the program's.
//
// Needs:
// `request` is the caller's, who does not use it from now on if this succeeds; `body` has `body_bytes` bytes.
int tpz_reply(tpz_request_t *request,
              uint16_t status,
              const void *body,
              size_t body_bytes,
              tpz_frame_t *data,
              size_t data_bytes);

// read(2) into memory that may be a region's: its pages are brought first, as the kernel cannot. As read(2) it may
// read less, and it reads no more than what a quarter of the region's frames holds. -1 for an error, which is in
// tpz_errno().
//
// Needs:
// `into` has `bytes` bytes.
ptrdiff_t tpz_read(int fd,
                   void *into,
                   size_t bytes);

// write(2) from memory that may be a region's; see tpz_read().
//
// Needs:
// `from` has `bytes` bytes.
ptrdiff_t tpz_write(int fd, const void *from, size_t bytes);

// pread(2) into memory that may be a region's; see tpz_read().
//
// Needs:
// `into` has `bytes` bytes.
ptrdiff_t tpz_pread(int fd, void *into, size_t bytes, uint64_t offset);

// pwrite(2) from memory that may be a region's; see tpz_read().
//
// Needs:
// `from` has `bytes` bytes.
ptrdiff_t tpz_pwrite(int fd, const void *from, size_t bytes, uint64_t offset);

// readv(2) into memory that may be a region's; see tpz_read(). 1024 parts at most.
//
// Needs:
// `parts` has `count` entries, and each has its bytes.
ptrdiff_t tpz_readv(int fd, const struct iovec *parts, int count);

// writev(2) from memory that may be a region's; see tpz_read(). 1024 parts at most.
//
// Needs:
// `parts` has `count` entries, and each has its bytes.
ptrdiff_t tpz_writev(int fd, const struct iovec *parts, int count);

// recv(2) into memory that may be a region's; see tpz_read(). A message of a datagram socket that is longer than what
// is read at most is cut, as by a buffer that is too short.
//
// Needs:
// `into` has `bytes` bytes.
ptrdiff_t tpz_recv(int fd,
                   void *into,
                   size_t bytes,
                   int flags);

// send(2) from memory that may be a region's; see tpz_read().
//
// Needs:
// `from` has `bytes` bytes.
ptrdiff_t tpz_send(int fd, const void *from, size_t bytes, int flags);

// Says that `bytes` bytes from `offset` of an open file in a mount of a cluster will be read soon, after all that was
// named before; all that follow when `bytes` is 0. The I/O servers read them ahead from their disks, and the mount the
// next files ahead of their reader. How many bytes were noted; -1 when it failed: tpz_errno() is ENOTTY where the file
// is in no mount, EAGAIN where the mount keeps no more hints. It changes no byte that is read.
ptrdiff_t tpz_prefetch(int fd,
                       uint64_t offset,
                       uint64_t bytes);

// Arms a token with a frame: one payload that comes with the token lands there. The frame is the table's until a
// message brings it (tpz_detach_rcvmsg) or the token is released. TPZ_EAGAIN when all 1,024 entries are in use.
//
// Needs:
// `ep` is open, `frame` the caller's, `token` can be written.
int tpz_get_replytoken(const tpz_ep_t *ep,
                       tpz_frame_t *frame,
                       tpz_token_t *token);

// Revokes a token: no payload lands by it any more. Writes the frame to `*frame`, or NULL where a payload was just
// landing: the frame is freed when that has ended. TPZ_ENOENT when the token is spent or was never valid; a message
// may wait that brings the frame.
//
// Needs:
// `ep` is open, `frame` can be written.
int tpz_release_replytoken(const tpz_ep_t *ep,
                           tpz_token_t token,
                           tpz_frame_t **frame);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRAPEZE_H */
