/* Every function of trapeze.h, each with what it must do and with what it must refuse, in one process. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "expect.h"

#define NO_POINTER(call, error, words)                  \
    do {                                                \
        EXPECT((call) == NULL);                         \
        EXPECT(tpz_errno() == (error));                 \
        EXPECT(strstr(tpz_last_error(), (words)));      \
    } while (0)

static int completed;
static tpz_frame_t *came_back;

static void completion(tpz_frame_t *frame, void *arg)
{
    completed += *(int *)arg;
    came_back = frame;
}

static tpz_frame_t *frame_of(tpz_ep_t *ep, const char *text)
{
    tpz_frame_t *frame = tpz_frame_alloc(ep, strlen(text) + 1);
    EXPECT(frame);
    memcpy(tpz_frame_mut(frame), text, strlen(text) + 1);
    return frame;
}

static void opening(void)
{
    tpz_options_t options = {.size = sizeof options};
    tpz_ep_t *ep = NULL;
    REFUSED(tpz_open(NULL, &ep), TPZ_EINVAL, "options is NULL");
    REFUSED(tpz_open(&options, NULL), TPZ_EINVAL, "ep is NULL");
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "node id");
    options.node = 7;
    options.listen = "nowhere";
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "unix:PATH");
    options.listen = "tcp:127.0.0.1:0";
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "TPZ_INSECURE");
    options.wait = 9;
    options.flags = TPZ_INSECURE;
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "TPZ_WAIT_");
    options.wait = TPZ_WAIT_BLOCK;
    options.flags = 8;
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "flags are 8");
    options.flags = TPZ_INSECURE;
    options.key = (const uint8_t *)"0123456789abcdef0123456789abcdef";
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "choose one");
    options.key = NULL;
    options.memory_bytes = UINT64_MAX;
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "memory_bytes");
    options.memory_bytes = 0;
    options.size = 3;
    REFUSED(tpz_open(&options, &ep), TPZ_EINVAL, "sizeof(tpz_options_t)");
    options.size = sizeof options;
    options.listen = "unix:/nowhere/at/all";
    EXPECT(tpz_open(&options, &ep) != TPZ_OK);
    EXPECT(strstr(tpz_last_error(), "/nowhere/at/all"));
    EXPECT(ep == NULL);
    EXPECT(tpz_close(NULL) == TPZ_OK);
    REFUSED(tpz_add_peer(NULL, 1, "unix:/x"), TPZ_EINVAL, "endpoint is NULL");
    EXPECT(tpz_self(NULL) == 0 && tpz_peer(NULL) == 0 && tpz_address(NULL) == NULL);
    REFUSED(tpz_wake(NULL), TPZ_EINVAL, "NULL");
    REFUSED(tpz_poll(NULL, 0), TPZ_EINVAL, "NULL");
    EXPECT(strcmp(tpz_strerror(TPZ_EHOSTDOWN), tpz_strerror(TPZ_OK)) != 0);
    EXPECT(tpz_strerror(-5) != NULL);
    EXPECT(tpz_version()[0] >= '0' && tpz_version()[0] <= '9');
}

static tpz_ep_t *open_alone(void)
{
    tpz_options_t options = {.size = sizeof options, .node = 7, .memory_bytes = 4 << 20, .wait = TPZ_WAIT_BLOCK};
    tpz_ep_t *ep;
    EXPECT(tpz_open(&options, &ep) == TPZ_OK);
    EXPECT(tpz_self(ep) == 7 && tpz_peer(ep) == 0 && strcmp(tpz_address(ep), "") == 0);
    REFUSED(tpz_add_peer(ep, 7, "unix:/x"), TPZ_EINVAL, "another endpoint");
    REFUSED(tpz_add_peer(ep, 8, NULL), TPZ_EINVAL, "NULL");
    REFUSED(tpz_add_peer(ep, 8, "x"), TPZ_EINVAL, "unix:PATH");
    return ep;
}

static void frames(tpz_ep_t *ep)
{
    NO_POINTER(tpz_frame_alloc(ep, 0), TPZ_EINVAL, "0 bytes");
    NO_POINTER(tpz_frame_alloc(ep, TPZ_PAYLOAD_BYTES + 1), TPZ_EINVAL, "1048577 bytes");
    tpz_frame_t *all[4];
    for (int i = 0; i < 4; i++)
        EXPECT((all[i] = tpz_frame_alloc(ep, TPZ_PAYLOAD_BYTES)) != NULL);
    NO_POINTER(tpz_frame_alloc(ep, 1), TPZ_ENOMEM, "0 of 1024 pages free");
    for (int i = 0; i < 4; i++)
        EXPECT(tpz_frame_free(all[i]) == TPZ_OK);

    tpz_frame_t *frame = frame_of(ep, "shared"), *copy = tpz_frame_dup(frame);
    EXPECT(tpz_frame_bytes(frame) == 7 && tpz_frame_data(copy) == tpz_frame_data(frame));
    NO_POINTER(tpz_frame_mut(copy), TPZ_EBUSY, "tpz_frame_dup");
    EXPECT(tpz_frame_free(copy) == TPZ_OK);
    EXPECT(tpz_frame_mut(frame) == tpz_frame_data(frame));
    EXPECT(tpz_frame_free(frame) == TPZ_OK);
    EXPECT(tpz_frame_free(NULL) == TPZ_OK);
    EXPECT(tpz_frame_bytes(NULL) == 0 && tpz_frame_data(NULL) == NULL);
    NO_POINTER(tpz_frame_mut(NULL), TPZ_EINVAL, "NULL");
    NO_POINTER(tpz_frame_dup(NULL), TPZ_EINVAL, "NULL");
}

/* To oneself: by way of the rings all the same. */
static void messages(tpz_ep_t *ep)
{
    int one = 1;
    NO_POINTER(tpz_get_rcvmsg(ep), TPZ_EAGAIN, "tpz_poll");
    tpz_msg_t *out = tpz_get_sendmsg(ep);
    EXPECT(out);
    memset(tpz_msg_data(out), 'm', TPZ_MESSAGE_BYTES);
    REFUSED(tpz_release_sendmsg(out), TPZ_EINVAL, "no destination");
    REFUSED(tpz_release_rcvmsg(out), TPZ_EINVAL, "tpz_get_rcvmsg");
    REFUSED(tpz_set_destination(out, 0), TPZ_EINVAL, "no destination");
    EXPECT(tpz_set_destination(out, 7) == TPZ_OK);
    EXPECT(tpz_get_source(out) == 0 && tpz_get_payload_len(out) == 0 && tpz_get_announced_len(out) == 0);
    NO_POINTER(tpz_detach_sendmsg(out), TPZ_EAGAIN, "no frame");
    REFUSED(tpz_attach_sendmsg(out, NULL, NULL, NULL), TPZ_EINVAL, "frame is NULL");
    tpz_frame_t *frame = frame_of(ep, "one, "), *second = frame_of(ep, "two and more");
    const void *where = tpz_frame_data(frame);
    EXPECT(tpz_attach_sendmsg(out, frame, NULL, NULL) == TPZ_OK);
    EXPECT(tpz_detach_sendmsg(out) == frame);
    EXPECT(tpz_attach_sendmsg(out, frame, completion, &one) == TPZ_OK);
    EXPECT(tpz_attach_sendmsg(out, second, NULL, NULL) == TPZ_OK);
    REFUSED(tpz_set_payload_len(out, 20), TPZ_EINVAL, "0 to 19");
    REFUSED(tpz_set_payload_len(out, -1), TPZ_EINVAL, "0 to 19");
    EXPECT(tpz_set_payload_len(out, 9) == TPZ_OK);
    EXPECT(tpz_release_sendmsg(out) == TPZ_OK);
    EXPECT(tpz_poll(ep, -1) == TPZ_OK);

    tpz_msg_t *in = tpz_get_rcvmsg(ep);
    EXPECT(in && tpz_get_source(in) == 7 && tpz_get_payload_len(in) == 9 && tpz_get_announced_len(in) == 9);
    EXPECT(((char *)tpz_msg_data(in))[TPZ_MESSAGE_BYTES - 1] == 'm');
    REFUSED(tpz_set_payload_len(in, 0), TPZ_EINVAL, "received");
    frame = tpz_detach_rcvmsg(in);
    EXPECT(frame && memcmp(tpz_frame_data(frame), "one, \0two", 9) == 0);
    NO_POINTER(tpz_detach_rcvmsg(in), TPZ_EAGAIN, "no frame");
    EXPECT(tpz_attach_rcvmsg(in, NULL) == TPZ_OK);
    EXPECT(tpz_attach_rcvmsg(in, frame) == TPZ_OK);
    EXPECT(tpz_release_rcvmsg(in) == TPZ_OK);
    EXPECT(completed == 1 && tpz_frame_data(came_back) == where && tpz_frame_mut(came_back) == where);
    EXPECT(tpz_frame_free(came_back) == TPZ_OK);

    EXPECT((out = tpz_spinwait_get_sendmsg(ep)) != NULL);
    EXPECT(tpz_attach_sendmsg(out, frame_of(ep, "never sent"), completion, &one) == TPZ_OK);
    EXPECT(tpz_senderr(out) == TPZ_OK);
    EXPECT(tpz_release_msg(out) == TPZ_OK);
    EXPECT(tpz_check_xmit_complete(ep) == TPZ_OK);
    EXPECT(completed == 2 && tpz_frame_free(came_back) == TPZ_OK);
    NO_POINTER(tpz_get_rcvmsg(ep), TPZ_EAGAIN, "no message");
}

static void post(tpz_ep_t *ep, tpz_token_t token, const char *text)
{
    tpz_msg_t *out = tpz_get_sendmsg(ep);
    EXPECT(out && tpz_set_destination(out, 7) == TPZ_OK);
    EXPECT(tpz_set_token(out, token) == TPZ_OK);
    EXPECT(tpz_attach_sendmsg(out, frame_of(ep, text), NULL, NULL) == TPZ_OK);
    EXPECT(tpz_release_sendmsg(out) == TPZ_OK);
}

static void tokens(tpz_ep_t *ep)
{
    tpz_token_t token, wrong = {.key = 1, .index = 1 << 20};
    tpz_frame_t *frame = tpz_frame_alloc(ep, 100), *copy = tpz_frame_dup(frame);
    const void *where = tpz_frame_data(frame);
    REFUSED(tpz_get_replytoken(ep, frame, NULL), TPZ_EINVAL, "token is NULL");
    REFUSED(tpz_get_replytoken(ep, frame, &token), TPZ_EBUSY, "others hold");
    EXPECT(tpz_frame_free(copy) == TPZ_OK);
    EXPECT(tpz_get_replytoken(ep, frame, &token) == TPZ_OK);
    post(ep, token, "there");
    post(ep, token, "a token works once");
    tpz_msg_t *in = tpz_spinwait_get_rcvmsg(ep);
    EXPECT(in && tpz_get_payload_len(in) == 6);
    frame = tpz_detach_rcvmsg(in);
    EXPECT(tpz_frame_data(frame) == where && strcmp(where, "there") == 0);
    EXPECT(tpz_release_rcvmsg(in) == TPZ_OK);
    EXPECT((in = tpz_spinwait_get_rcvmsg(ep)) != NULL);
    EXPECT(tpz_get_payload_len(in) == 0 && tpz_get_announced_len(in) == 19);
    EXPECT(tpz_release_msg(in) == TPZ_OK);
    REFUSED(tpz_release_replytoken(ep, token, &frame), TPZ_ENOENT, "spent");
    REFUSED(tpz_release_replytoken(ep, wrong, &frame), TPZ_EINVAL, "none of");
    REFUSED(tpz_release_replytoken(ep, token, NULL), TPZ_EINVAL, "frame is NULL");
    EXPECT(tpz_get_replytoken(ep, frame, &token) == TPZ_OK);
    tpz_frame_t *back = NULL;
    EXPECT(tpz_release_replytoken(ep, token, &back) == TPZ_OK && tpz_frame_data(back) == where);
    EXPECT(tpz_frame_free(back) == TPZ_OK);
}

/* A service that doubles a number, echoes data, or answers later. */
static tpz_request_t *kept;

static void handler(tpz_request_t *request, void *arg)
{
    tpz_request_info_t info;
    REFUSED(tpz_close(arg), TPZ_EBUSY, "callback");
    REFUSED(tpz_request_info(request, NULL), TPZ_EINVAL, "info is NULL");
    EXPECT(tpz_request_info(request, &info) == TPZ_OK);
    EXPECT(info.source == 7 && info.channel == 20);
    unsigned char twice = info.body[0] * 2;
    REFUSED(tpz_reply(request, TPZ_STATUS_RESERVED, NULL, 0, NULL, 0), TPZ_EINVAL, "status");
    REFUSED(tpz_reply(request, 0, &twice, 65, NULL, 0), TPZ_EMSGSIZE, "65");
    REFUSED(tpz_reply(request, 0, NULL, 1, NULL, 0), TPZ_EINVAL, "body is NULL");
    if (info.op == 1) {
        NO_POINTER(tpz_request_detach(request), TPZ_EAGAIN, "no data");
        EXPECT(tpz_reply(request, 0, &twice, 1, NULL, 0) == TPZ_OK);
    } else if (info.op == 2) {
        tpz_frame_t *data = tpz_request_detach(request);
        EXPECT(data && info.bytes == 5 && info.flags == TPZ_ONCE);
        EXPECT(tpz_reply(request, 0, NULL, 0, data, info.bytes) == TPZ_OK);
    } else {
        kept = request;
    }
}

static int replies;

static void answered(const tpz_reply_t *reply, void *arg)
{
    EXPECT(reply->code == *(int *)arg);
    replies++;
    tpz_frame_free(reply->data);
    tpz_frame_free(reply->into);
}

/* A wake is for tpz_poll: a call that nobody answers waits asleep. */
static void woken_while_it_waits(tpz_ep_t *ep, const tpz_call_t *unanswered)
{
    tpz_counters_t before, after;
    tpz_reply_t reply;
    EXPECT(tpz_counters(ep, &before) == TPZ_OK);
    EXPECT(tpz_wake(ep) == TPZ_OK);
    REFUSED(tpz_call_wait(ep, unanswered, &reply), TPZ_ETIMEDOUT, "no reply");
    EXPECT(tpz_counters(ep, &after) == TPZ_OK);
    EXPECT(after.sleeps - before.sleeps < 100);
    EXPECT(tpz_poll(ep, 0) == TPZ_OK); /* the request has come */
    EXPECT(tpz_reply(kept, 0, NULL, 0, NULL, 0) == TPZ_OK);
    EXPECT(tpz_poll(ep, -1) == TPZ_OK); /* by the wake */
    REFUSED(tpz_poll(ep, 0), TPZ_ETIMEDOUT, "nothing happened");
}

static void calls(tpz_ep_t *ep)
{
    unsigned char number = 21;
    int ok = TPZ_OK, late = TPZ_ETIMEDOUT, cancelled = TPZ_ECANCELED;
    tpz_reply_t reply;
    tpz_call_t call = {.size = sizeof call, .to = 7, .channel = 20, .op = 1, .body = &number, .body_bytes = 1};
    REFUSED(tpz_call(ep, NULL, answered, &ok), TPZ_EINVAL, "call is NULL");
    REFUSED(tpz_call(ep, &call, NULL, NULL), TPZ_EINVAL, "callback is NULL");
    REFUSED(tpz_call_wait(ep, &call, NULL), TPZ_EINVAL, "reply is NULL");
    REFUSED(tpz_call_wait(ep, &call, &reply), TPZ_ECONNREFUSED, "no reply");
    REFUSED(tpz_serve(ep, 15, handler, ep), TPZ_EINVAL, "16 to 31");
    REFUSED(tpz_serve(ep, 20, NULL, ep), TPZ_EINVAL, "handler is NULL");
    EXPECT(tpz_serve(ep, 20, handler, ep) == TPZ_OK);
    REFUSED(tpz_serve(ep, 20, handler, ep), TPZ_EBUSY, "served already");

    EXPECT(tpz_call(ep, &call, answered, &ok) == TPZ_OK);
    while (replies < 1)
        EXPECT(tpz_poll(ep, -1) == TPZ_OK);

    tpz_call_t data = {.size = sizeof data, .to = 7, .channel = 20, .op = 2, .flags = TPZ_ONCE};
    data.data = frame_of(ep, "bytes");
    data.into = data.data;
    REFUSED(tpz_call(ep, &data, answered, &ok), TPZ_EINVAL, "same frame");
    data.into = tpz_frame_alloc(ep, 100);
    data.data_bytes = 7;
    REFUSED(tpz_call(ep, &data, answered, &ok), TPZ_EINVAL, "data_bytes is 7");
    data.data_bytes = 5;
    EXPECT(tpz_call(ep, &data, answered, &ok) == TPZ_OK);
    while (replies < 2)
        EXPECT(tpz_poll(ep, -1) == TPZ_OK);

    call.op = 3;
    call.timeout_ms = 20;
    call.flags = 4;
    REFUSED(tpz_call(ep, &call, answered, &late), TPZ_EINVAL, "flags are 4");
    call.flags = 0;
    EXPECT(tpz_call(ep, &call, answered, &late) == TPZ_OK);
    while (replies < 3)
        EXPECT(tpz_poll(ep, -1) == TPZ_OK);
    EXPECT(tpz_reply(kept, 0, NULL, 0, NULL, 0) == TPZ_OK);
    woken_while_it_waits(ep, &call);
    call.timeout_ms = 0;
    call.into = tpz_frame_alloc(ep, 10);
    EXPECT(tpz_call(ep, &call, answered, &cancelled) == TPZ_OK);
    NO_POINTER(tpz_request_detach(NULL), TPZ_EINVAL, "request is NULL");
    REFUSED(tpz_reply(NULL, 0, NULL, 0, NULL, 0), TPZ_EINVAL, "request is NULL");
}

static void *elsewhere(void *arg)
{
    EXPECT(tpz_errno() == TPZ_OK);
    REFUSED(tpz_poll(arg, 0), TPZ_EPERM, "another thread");
    EXPECT(tpz_wake(arg) == TPZ_OK);
    return NULL;
}

/* The system calls on memory that is no region's are the plain ones. */
static void plain_system_calls(void)
{
    char from[] = "everything", into[sizeof from] = "";
    const ptrdiff_t all = sizeof from;
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct iovec given[] = {{from, 5}, {NULL, 0}, {from + 5, sizeof from - 5}};
    struct iovec filled[] = {{into, 1}, {into + 1, sizeof into - 1}};
    EXPECT(tpz_writev(ends[0], given, 3) == all);
    EXPECT(tpz_readv(ends[1], filled, 2) == all && strcmp(from, into) == 0);
    EXPECT(tpz_send(ends[0], from, 3, 0) == 3 && tpz_recv(ends[1], into, 2, MSG_PEEK) == 2);
    EXPECT(tpz_recv(ends[1], into, sizeof into, 0) == 3);
    EXPECT(tpz_readv(ends[1], NULL, 0) == 0 && tpz_writev(ends[0], NULL, 0) == 0);
    EXPECT(tpz_send(ends[0], NULL, 0, 0) == 0);

    given[1].iov_len = 1;
    REFUSED(tpz_writev(ends[0], given, 3) == -1 ? tpz_errno() : 0, TPZ_EINVAL, "buffer is NULL");
    REFUSED(tpz_readv(ends[1], filled, -1) == -1 ? tpz_errno() : 0, TPZ_EINVAL, "-1 parts");
    REFUSED(tpz_readv(ends[1], NULL, 2) == -1 ? tpz_errno() : 0, TPZ_EINVAL, "parts not NULL");
    REFUSED(tpz_writev(ends[0], given, 1025) == -1 ? tpz_errno() : 0, TPZ_EINVAL, "0 to 1024");
    REFUSED(tpz_recv(ends[1], NULL, 1, 0) == -1 ? tpz_errno() : 0, TPZ_EINVAL, "buffer is NULL");
    REFUSED(tpz_send(-1, from, 1, 0) == -1 ? tpz_errno() : 0, TPZ_EBADF, "descriptor -1");
    REFUSED(tpz_prefetch(-1, 0, 0) == -1 ? tpz_errno() : 0, TPZ_EBADF, "descriptor -1");
    FILE *elsewhere = tmpfile();
    EXPECT(elsewhere != NULL && tpz_prefetch(fileno(elsewhere), 0, 4096) == -1 && tpz_errno() == ENOTTY);
    EXPECT(fclose(elsewhere) == 0);
    EXPECT(tpz_recv(ends[1], into, 1, MSG_DONTWAIT) == -1 && tpz_errno() == TPZ_EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    opening();
    plain_system_calls();
    tpz_ep_t *ep = open_alone();
    REFUSED(tpz_poll(ep, 0), TPZ_ETIMEDOUT, "nothing happened");
    REFUSED(tpz_poll(ep, 5), TPZ_ETIMEDOUT, "nothing happened");
    frames(ep);
    messages(ep);
    tokens(ep);

    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, elsewhere, ep) == 0);
    EXPECT(tpz_poll(ep, -1) == TPZ_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    REFUSED(tpz_poll(ep, 0), TPZ_ETIMEDOUT, "nothing happened");

    tpz_counters_t counters;
    REFUSED(tpz_counters(ep, NULL), TPZ_EINVAL, "counters is NULL");
    EXPECT(tpz_counters(ep, &counters) == TPZ_OK);
    EXPECT(counters.received == 3 && counters.discarded == 1 && counters.dropped == 0);
    EXPECT(counters.free_pages == 1024);

    calls(ep);
    tpz_frame_t *kept_frame = frame_of(ep, "outlives its endpoint");
    EXPECT(tpz_close(ep) == TPZ_OK);
    EXPECT(replies == 4);
    EXPECT(strcmp(tpz_frame_data(kept_frame), "outlives its endpoint") == 0);
    EXPECT(tpz_frame_free(kept_frame) == TPZ_OK);
    puts("everything is as it should be");
    return 0;
}
