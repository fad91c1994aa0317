/*
 * A cluster whose machines lend memory, from C: `cluster DIR`, or `cluster tcp:HOST:PORT KEY LISTEN LISTEN`, its manager,
 * its key in hexadecimal digits, and where the two endpoints listen. They join it, one puts pages and the other gets them
 * when the first has gone; a region keeps its pages there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include "expect.h"

#define PAGES 64
#define PAGE 4096
#define REGION_PAGES 1024

static const char *cluster;
static uint8_t key[32];
static const uint8_t *secret;
static const char *listens[2];
static atomic_int stage;

static tpz_cluster_options_t usual(void)
{
    return (tpz_cluster_options_t){
        .size = sizeof(tpz_cluster_options_t), .cluster = cluster, .key = secret, .lend_bytes = 16 << 20, .wait = TPZ_WAIT_BLOCK};
}

static void wrong_options(void)
{
    tpz_ep_t *ep = NULL;
    tpz_cluster_options_t options = usual();
    REFUSED(tpz_join(NULL, &ep), TPZ_EINVAL, "options is NULL");
    REFUSED(tpz_join(&options, NULL), TPZ_EINVAL, "ep is NULL");
    options.lend_bytes = 4096;
    REFUSED(tpz_join(&options, &ep), TPZ_EINVAL, "lend 16M or more");
    options = usual();
    options.cluster = NULL;
    REFUSED(tpz_join(&options, &ep), TPZ_EINVAL, "cluster is NULL");
    options.cluster = "nowhere at all";
    REFUSED(tpz_join(&options, &ep), TPZ_EINVAL, "neither a cluster's directory nor an address");
    options.size = 1;
    REFUSED(tpz_join(&options, &ep), TPZ_EINVAL, "sizeof(tpz_cluster_options_t)");
    EXPECT(ep == NULL);
}

static tpz_ep_t *joined(int number)
{
    tpz_ep_t *ep;
    tpz_cluster_options_t options = usual();
    options.listen = listens[number];
    EXPECT(tpz_join(&options, &ep) == TPZ_OK);
    tpz_member_t self = {.incarnation = tpz_incarnation(ep), .weight = 1, .node = tpz_self(ep)};
    REFUSED(tpz_set_view(ep, 1000000, &self, 1), TPZ_EINVAL, "view of the cluster");
    REFUSED(tpz_memory_start(ep, 1 << 20), TPZ_EBUSY, "served already");
    return ep;
}

typedef int (*batch_t)(const tpz_ep_t *, tpz_page_op_t *, size_t, tpz_done_fn_t, void *);

/*
 * Does it with all pages. An endpoint that gets no processor does not answer within the 10 s that the library waits: what
 * may be asked again then is asked again, page by page.
 */
static void do_all(batch_t batch, tpz_ep_t *ep, tpz_page_op_t *ops)
{
    int tries = 0;
    batch(ep, ops, PAGES, NULL, NULL);
    for (int i = 0; i < PAGES; i++) {
        while (ops[i].code != TPZ_OK) {
            EXPECT(ops[i].code == TPZ_EAGAIN || ops[i].code == TPZ_ENOSPC);
            fprintf(stderr, "page %d: %s\n", i, tpz_last_error());
            EXPECT(++tries < 10);
            batch(ep, &ops[i], 1, NULL, NULL);
        }
    }
}

static void put(tpz_ep_t *ep)
{
    tpz_page_op_t ops[PAGES];
    for (uint64_t i = 0; i < PAGES; i++) {
        tpz_frame_t *frame = tpz_frame_alloc(ep, PAGE);
        EXPECT(frame);
        memset(tpz_frame_mut(frame), (int)i + 1, PAGE);
        ops[i] = (tpz_page_op_t){
            .space = tpz_shared_space(7), .index = i, .frame = frame, .durability = TPZ_MIRRORED};
    }
    do_all(tpz_put, ep, ops);
    do_all(tpz_flush, ep, ops);
    for (int i = 0; i < PAGES; i++)
        EXPECT(tpz_frame_free(ops[i].frame) == TPZ_OK);
}

static void get(tpz_ep_t *ep)
{
    tpz_page_op_t ops[PAGES];
    for (uint64_t i = 0; i < PAGES; i++)
        ops[i] = (tpz_page_op_t){.space = tpz_shared_space(7), .index = i, .version = 1, .bytes = PAGE};
    do_all(tpz_get, ep, ops);
    for (int i = 0; i < PAGES; i++) {
        const unsigned char *bytes = tpz_frame_data(ops[i].frame);
        EXPECT(bytes[0] == i + 1 && bytes[PAGE - 1] == i + 1);
        EXPECT(tpz_frame_free(ops[i].frame) == TPZ_OK);
    }
}

/* Puts, and leaves. */
static void *first(void *arg)
{
    tpz_ep_t *ep = joined(1);
    put(ep);
    EXPECT(tpz_close(ep) == TPZ_OK);
    atomic_store(&stage, 1);
    return arg;
}

static void map_region(void)
{
    tpz_region_t *region;
    tpz_region_options_t options = {
        .size = sizeof options, .bytes = (size_t)REGION_PAGES * PAGE, .frames = 128, .file = "/x", .cluster = cluster, .key = secret};
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "name one of the three");
    options.file = NULL;
    int code = tpz_region_map(&options, &region);
    if (code == TPZ_EACCES || code == TPZ_ENOSYS) {
        puts(tpz_last_error());
        exit(77);
    }
    EXPECT(code == TPZ_OK);
    uint64_t *words = tpz_region_data(region);
    for (uint64_t i = 0; i < REGION_PAGES; i++)
        words[i * PAGE / 8] = i + 1;
    for (uint64_t i = 0; i < REGION_PAGES; i++)
        EXPECT(words[i * PAGE / 8] == i + 1);
    tpz_region_counters_t counters;
    EXPECT(tpz_region_counters(region, &counters) == TPZ_OK && counters.fetched > 0 && counters.stored > 0);
    EXPECT(tpz_region_unmap(region) == TPZ_OK);
}

/* Another key than the cluster's opens nothing. */
static void with_key(char **arguments)
{
    tpz_ep_t *ep;
    for (int i = 0; i < 32; i++)
        EXPECT(sscanf(arguments[0] + 2 * i, "%2hhx", &key[i]) == 1);
    secret = key;
    listens[0] = arguments[1];
    listens[1] = arguments[2];
    tpz_cluster_options_t options = usual();
    options.listen = listens[0];
    uint8_t other[32] = {1};
    options.key = other;
    EXPECT(tpz_join(&options, &ep) != TPZ_OK);
    options.key = NULL;
    REFUSED(tpz_join(&options, &ep), TPZ_EINVAL, "key");
}

int main(int count, char **arguments)
{
    pthread_t thread;
    EXPECT(count == 2 || count == 5);
    cluster = arguments[1];
    if (count == 5)
        with_key(arguments + 2);
    wrong_options();
    tpz_ep_t *ep = joined(0);
    EXPECT(pthread_create(&thread, NULL, first, NULL) == 0);
    while (atomic_load(&stage) == 0)
        tpz_poll(ep, 1);
    EXPECT(pthread_join(thread, NULL) == 0);
    get(ep);
    EXPECT(tpz_close(ep) == TPZ_OK);
    map_region();
    printf("%d pages and a region of %d in a cluster\n", PAGES, REGION_PAGES);
    return 0;
}
