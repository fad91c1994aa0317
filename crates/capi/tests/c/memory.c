/*
 * Network memory in C: three endpoints, each with a thread of its own; the first puts pages, the others get them. Then the
 * first puts pages that both others have, the third closes, and the second gets them all.
 * `memory DIRECTORY`, for the sockets.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "expect.h"

#define NODES 3
#define PAGES 64
#define PAGE 8192
/* As many as both others have room for, beside what was put before. */
#define MIRRORED 256

static const char *directory;
static tpz_member_t members[NODES];
static atomic_int opened, stage, ended;

static void address_of(int node, char *into, size_t bytes)
{
    snprintf(into, bytes, "unix:%s/%d", directory, node);
}

static void wait_for(tpz_ep_t *ep, atomic_int *what, int value)
{
    while (atomic_load(what) < value)
        tpz_poll(ep, 1);
}

static tpz_ep_t *open_node(int node)
{
    char address[200];
    tpz_ep_t *ep;
    address_of(node, address, sizeof address);
    tpz_options_t options = {
        .size = sizeof options, .node = node, .listen = address, .memory_bytes = 16 << 20, .wait = TPZ_WAIT_BLOCK};
    EXPECT(tpz_open(&options, &ep) == TPZ_OK);
    REFUSED(tpz_set_view(ep, 1, members, NODES), TPZ_EINVAL, "tpz_memory_start");
    REFUSED(tpz_memory_start(ep, 1), TPZ_EINVAL, "half of memory_bytes");
    EXPECT(tpz_memory_start(ep, 4 << 20) == TPZ_OK);
    REFUSED(tpz_memory_start(ep, 4 << 20), TPZ_EBUSY, "served already");
    for (int other = 1; other <= NODES; other++) {
        address_of(other, address, sizeof address);
        if (other != node)
            EXPECT(tpz_add_peer(ep, other, address) == TPZ_OK);
    }
    members[node - 1] = (tpz_member_t){.incarnation = tpz_incarnation(ep), .weight = 1, .node = node};
    atomic_fetch_add(&opened, 1);
    wait_for(ep, &opened, NODES);
    REFUSED(tpz_set_view(ep, 1, NULL, 1), TPZ_EINVAL, "members not NULL");
    REFUSED(tpz_set_view(ep, 1, &members[node % NODES], 1), TPZ_EINVAL, "not among them");
    EXPECT(tpz_set_view(ep, 1, members, NODES) == TPZ_OK);
    REFUSED(tpz_set_view(ep, 1, members, NODES), TPZ_EINVAL, "must grow");
    return ep;
}

static void put(tpz_ep_t *ep, uint64_t space)
{
    tpz_page_op_t ops[PAGES];
    for (uint64_t i = 0; i < PAGES; i++) {
        tpz_frame_t *frame = tpz_frame_alloc(ep, PAGE);
        EXPECT(frame);
        memset(tpz_frame_mut(frame), (int)i + 1, PAGE);
        ops[i] = (tpz_page_op_t){.space = space, .index = i, .frame = frame, .durability = TPZ_MIRRORED};
    }
    ops[0].durability = 9;
    REFUSED(tpz_put(ep, ops, PAGES, NULL, NULL), TPZ_EINVAL, "durability 9");
    ops[0].durability = TPZ_MIRRORED;
    REFUSED(tpz_put(ep, ops, 0, NULL, NULL), TPZ_EINVAL, "0 pages");
    EXPECT(tpz_put(ep, ops, PAGES, NULL, NULL) == TPZ_OK);
    EXPECT(ops[0].version > 0);
    EXPECT(tpz_put(ep, ops, 1, NULL, NULL) == TPZ_EEXIST && ops[0].code == TPZ_EEXIST);
    EXPECT(tpz_flush(ep, ops, PAGES, NULL, NULL) == TPZ_OK);
    for (int i = 0; i < PAGES; i++)
        EXPECT(tpz_frame_free(ops[i].frame) == TPZ_OK);
}

static void got(int code, void *arg)
{
    EXPECT(code == TPZ_OK);
    *(int *)arg = 1;
}

/* All pages; the first half at once with a callback. */
static void get(tpz_ep_t *ep, uint64_t space)
{
    tpz_page_op_t ops[PAGES];
    int done = 0;
    for (uint64_t i = 0; i < PAGES; i++)
        ops[i] = (tpz_page_op_t){.space = space, .index = i, .version = 1, .bytes = PAGE};
    EXPECT(tpz_get(ep, ops, PAGES / 2, got, &done) == TPZ_OK);
    while (!done)
        EXPECT(tpz_poll(ep, -1) == TPZ_OK);
    EXPECT(tpz_get(ep, ops + PAGES / 2, PAGES / 2, NULL, NULL) == TPZ_OK);
    for (int i = 0; i < PAGES; i++) {
        const unsigned char *bytes = tpz_frame_data(ops[i].frame);
        EXPECT(ops[i].code == TPZ_OK && ops[i].version >= 1 && tpz_frame_bytes(ops[i].frame) == PAGE);
        EXPECT(bytes[0] == i + 1 && bytes[PAGE - 1] == i + 1);
        EXPECT(tpz_frame_free(ops[i].frame) == TPZ_OK);
    }
    ops[0].bytes = 0;
    REFUSED(tpz_get(ep, ops, 1, NULL, NULL), TPZ_EINVAL, "bytes is 0");
    /* Who asks for a version says that there was one. */
    ops[0] = (tpz_page_op_t){.space = space, .index = 1000, .version = 0, .bytes = PAGE};
    ops[1] = (tpz_page_op_t){.space = space, .index = 1000, .version = 1, .bytes = PAGE};
    EXPECT(tpz_get(ep, &ops[0], 1, NULL, NULL) == TPZ_ENOENT && ops[0].code == TPZ_ENOENT);
    EXPECT(tpz_get(ep, &ops[1], 1, NULL, NULL) == TPZ_ENODATA && ops[1].code == TPZ_ENODATA);
}

static void put_mirrored(tpz_ep_t *ep)
{
    tpz_page_op_t ops[PAGES];
    for (uint64_t first = 0; first < MIRRORED; first += PAGES) {
        for (uint64_t i = 0; i < PAGES; i++) {
            tpz_frame_t *frame = tpz_frame_alloc(ep, PAGE);
            EXPECT(frame);
            memset(tpz_frame_mut(frame), (int)(first + i) % 251, PAGE);
            ops[i] = (tpz_page_op_t){
                .space = tpz_shared_space(2), .index = first + i, .frame = frame, .durability = TPZ_MIRRORED};
        }
        EXPECT(tpz_put(ep, ops, PAGES, NULL, NULL) == TPZ_OK);
        EXPECT(tpz_flush(ep, ops, PAGES, NULL, NULL) == TPZ_OK);
        for (int i = 0; i < PAGES; i++)
            EXPECT(tpz_frame_free(ops[i].frame) == TPZ_OK);
    }
}

static void get_mirrored(tpz_ep_t *ep)
{
    for (uint64_t index = 0; index < MIRRORED; index++) {
        tpz_page_op_t op = {.space = tpz_shared_space(2), .index = index, .version = 1, .bytes = PAGE};
        EXPECT(tpz_get(ep, &op, 1, NULL, NULL) == TPZ_OK && op.code == TPZ_OK);
        const unsigned char *bytes = tpz_frame_data(op.frame);
        EXPECT(bytes[0] == index % 251 && bytes[PAGE - 1] == index % 251);
        EXPECT(tpz_frame_free(op.frame) == TPZ_OK);
    }
}

/* The third endpoint goes with what it has. */
static void lose_the_third(tpz_ep_t *ep, int node)
{
    if (node == 1) {
        put_mirrored(ep);
        atomic_store(&stage, 2);
    }
    wait_for(ep, &stage, 2);
    if (node == 3) {
        EXPECT(tpz_close(ep) == TPZ_OK);
        atomic_store(&stage, 3);
        return;
    }
    wait_for(ep, &stage, 3);
    EXPECT(tpz_set_view(ep, 2, members, 2) == TPZ_OK);
    if (node == 2) {
        get_mirrored(ep);
        atomic_store(&stage, 4);
    }
    wait_for(ep, &stage, 4);
    EXPECT(tpz_close(ep) == TPZ_OK);
}

static void *run(void *arg)
{
    int node = (int)(intptr_t)arg;
    tpz_ep_t *ep = open_node(node);
    uint64_t space = tpz_shared_space(1);
    EXPECT(tpz_own_space(ep, 1) != space && tpz_own_space(NULL, 1) == 0);
    if (node == 1) {
        put(ep, space);
        atomic_store(&stage, 1);
    }
    wait_for(ep, &stage, 1);
    get(ep, space);
    atomic_fetch_add(&ended, 1);
    wait_for(ep, &ended, NODES);
    if (node == 2) {
        EXPECT(tpz_free_space(ep, space, NULL, NULL) == TPZ_OK);
        tpz_page_op_t op = {.space = space, .version = 1, .bytes = PAGE};
        EXPECT(tpz_get(ep, &op, 1, NULL, NULL) == TPZ_ESTALE && op.code == TPZ_ESTALE);
    }
    atomic_fetch_add(&ended, 1);
    wait_for(ep, &ended, 2 * NODES);
    lose_the_third(ep, node);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[NODES];
    EXPECT(argc == 2);
    directory = argv[1];
    for (intptr_t node = 1; node <= NODES; node++)
        EXPECT(pthread_create(&threads[node - 1], NULL, run, (void *)node) == 0);
    for (int node = 0; node < NODES; node++)
        EXPECT(pthread_join(threads[node], NULL) == 0);
    printf("%d pages in the memory of %d endpoints\n", PAGES, NODES);
    return 0;
}
