/*
 * Two processes exchange pages: one by messages and a token, one by a call.
 *
 *   cc -o pages pages.c $(pkg-config --cflags --libs trapeze)
 *   ./pages serve unix:/tmp/pages &
 *   ./pages fetch unix:/tmp/pages
 *
 * Both have a page for every number. The fetcher asks for one in two ways. With messages it arms a token with a frame of
 * its own and sends the token along: the server's page lands in that frame (HPDC'97 section 2, getpage). With a call it
 * leaves all of that to NetRPC, which also asks again when something is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trapeze.h>

#define PAGE 8192
#define READ_BLOCK 1
#define QUIT 2

/* What a getpage message says. */
struct getpage {
    uint64_t number;
    tpz_token_t token;
};

static int finished;

static void check(int code, const char *what)
{
    if (code != TPZ_OK) {
        fprintf(stderr, "%s: %s\n", what, tpz_last_error());
        exit(1);
    }
}

static void *there(void *pointer, const char *what)
{
    check(pointer == NULL ? tpz_errno() : TPZ_OK, what);
    return pointer;
}

/* A frame with the page's contents: its number, over and over. */
static tpz_frame_t *page(tpz_ep_t *ep, uint64_t number)
{
    tpz_frame_t *frame = there(tpz_frame_alloc(ep, PAGE), "a frame");
    uint64_t *words = tpz_frame_mut(frame);
    for (size_t i = 0; i < PAGE / sizeof *words; i++)
        words[i] = number;
    return frame;
}

static void compare(const uint64_t *words, uint64_t number)
{
    for (size_t i = 0; i < PAGE / sizeof *words; i++)
        if (words[i] != number) {
            fprintf(stderr, "word %zu of page %llu is %llu\n", i, (unsigned long long)number,
                    (unsigned long long)words[i]);
            exit(1);
        }
}

static void handle(tpz_request_t *request, void *arg)
{
    tpz_ep_t *ep = arg;
    tpz_request_info_t info;
    uint64_t number;
    check(tpz_request_info(request, &info), "a request");
    memcpy(&number, info.body, sizeof number);
    finished = info.op == QUIT;
    if (info.op == READ_BLOCK)
        check(tpz_reply(request, 0, NULL, 0, page(ep, number), 0), "the answer");
    else
        check(tpz_reply(request, finished ? 0 : TPZ_EINVAL, NULL, 0, NULL, 0), "the answer");
}

/* Sends the page that a message asks for to the frame that the asker has chosen. */
static void answer(tpz_ep_t *ep, tpz_msg_t *asked)
{
    struct getpage get;
    memcpy(&get, tpz_msg_data(asked), sizeof get);
    tpz_msg_t *reply = there(tpz_spinwait_get_sendmsg(ep), "a send entry");
    check(tpz_set_destination(reply, tpz_get_source(asked)), "the asker");
    check(tpz_set_token(reply, get.token), "the token");
    check(tpz_attach_sendmsg(reply, page(ep, get.number), NULL, NULL), "the page");
    check(tpz_release_sendmsg(reply), "sending");
    check(tpz_release_rcvmsg(asked), "the receive entry");
}

static void serve(tpz_ep_t *ep)
{
    check(tpz_serve(ep, TPZ_CHANNEL_FIRST, handle, ep), "the service");
    printf("%s\n", tpz_address(ep));
    fflush(stdout);
    while (!finished) {
        tpz_msg_t *message;
        check(tpz_poll(ep, -1), "poll");
        while ((message = tpz_get_rcvmsg(ep)) != NULL)
            answer(ep, message);
    }
}

static void fetch_by_message(tpz_ep_t *ep, uint64_t number)
{
    struct getpage get = {.number = number};
    tpz_frame_t *frame = there(tpz_frame_alloc(ep, PAGE), "a frame");
    const void *chosen = tpz_frame_data(frame);
    check(tpz_get_replytoken(ep, frame, &get.token), "a token");
    tpz_msg_t *message = there(tpz_get_sendmsg(ep), "a send entry");
    memcpy(tpz_msg_data(message), &get, sizeof get);
    check(tpz_release_sendmsg(message), "sending");

    tpz_msg_t *reply = there(tpz_spinwait_get_rcvmsg(ep), "the page");
    if (tpz_get_payload_len(reply) != PAGE) {
        fprintf(stderr, "%d of %d bytes came\n", tpz_get_payload_len(reply), tpz_get_announced_len(reply));
        exit(1);
    }
    frame = there(tpz_detach_rcvmsg(reply), "the frame");
    check(tpz_release_rcvmsg(reply), "the receive entry");
    compare(tpz_frame_data(frame), number);
    printf("message: page %llu is right, in the frame that was chosen: %s\n", (unsigned long long)number,
           tpz_frame_data(frame) == chosen ? "yes" : "no");
    tpz_frame_free(frame);
}

static void fetch_by_call(tpz_ep_t *ep, uint64_t number)
{
    tpz_reply_t reply;
    tpz_call_t call = {
        .size = sizeof call,
        .channel = TPZ_CHANNEL_FIRST,
        .op = READ_BLOCK,
        .body = &number,
        .body_bytes = sizeof number,
        .into = there(tpz_frame_alloc(ep, PAGE), "a frame"),
    };
    check(tpz_call_wait(ep, &call, &reply), "the call");
    if (reply.status != 0 || reply.bytes != PAGE) {
        fprintf(stderr, "status %d, %zu bytes\n", reply.status, reply.bytes);
        exit(1);
    }
    compare(tpz_frame_data(reply.into), number);
    printf("call: block %llu is right\n", (unsigned long long)number);
    tpz_frame_free(reply.into);
}

static void quit(tpz_ep_t *ep)
{
    tpz_reply_t reply;
    tpz_call_t call = {.size = sizeof call, .channel = TPZ_CHANNEL_FIRST, .op = QUIT, .flags = TPZ_ONCE};
    check(tpz_call_wait(ep, &call, &reply), "the last call");
}

int main(int argc, char **argv)
{
    tpz_options_t options = {.size = sizeof options, .flags = TPZ_INSECURE};
    tpz_ep_t *ep;
    int serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (argc != 3 || (!serves && strcmp(argv[1], "fetch") != 0)) {
        fprintf(stderr, "usage: %s serve|fetch unix:PATH|tcp:HOST:PORT\n", argv[0]);
        return 2;
    }
    if (serves) {
        options.node = 1;
        options.listen = argv[2];
    } else {
        options.connect = argv[2];
    }
    check(tpz_open(&options, &ep), argv[2]);
    if (serves) {
        serve(ep);
    } else {
        for (uint64_t number = 1; number <= 100; number += 33) {
            fetch_by_message(ep, number);
            fetch_by_call(ep, number);
        }
        quit(ep);
    }
    check(tpz_close(ep), "closing");
    return 0;
}
