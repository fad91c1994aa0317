/*
 * Regions: `regions file PATH` with the pages in a file, `regions hold ADDRESS` an endpoint that keeps pages, `regions map
 * ADDRESS ADDRESS` with the pages there. Ends with 77 where the system does not let programs serve their page faults.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "expect.h"

#define PAGE 4096
#define PAGES 1024
#define FRAMES 256
#define BYTES ((size_t)PAGES * PAGE)

static void wrong_options(void)
{
    tpz_region_options_t options = {.size = sizeof options, .bytes = BYTES, .frames = FRAMES};
    tpz_region_t *region = NULL;
    const char *holders[] = {"tcp:127.0.0.1:1"};
    REFUSED(tpz_region_map(NULL, &region), TPZ_EINVAL, "options is NULL");
    REFUSED(tpz_region_map(&options, NULL), TPZ_EINVAL, "region is NULL");
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "name one of the three");
    options.holders = holders;
    options.holders_count = 17;
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "at most 16");
    options.holders_count = 1;
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "TPZ_INSECURE");
    options.flags = TPZ_INSECURE;
    options.copies = 2;
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "2 copies with 1 holders");
    options.holders_count = 0;
    options.file = "/nowhere/at/all";
    EXPECT(tpz_region_map(&options, &region) != TPZ_OK && strstr(tpz_last_error(), "/nowhere/at/all"));
    options.size = 1;
    REFUSED(tpz_region_map(&options, &region), TPZ_EINVAL, "sizeof(tpz_region_options_t)");
    EXPECT(region == NULL && tpz_region_unmap(NULL) == TPZ_OK);
    EXPECT(tpz_region_data(NULL) == NULL && tpz_region_bytes(NULL) == 0);
    REFUSED(tpz_region_sync(NULL), TPZ_EINVAL, "region is NULL");
}

static tpz_region_t *mapped(tpz_region_options_t options)
{
    tpz_region_t *region;
    options.size = sizeof options;
    options.bytes = BYTES;
    options.frames = 3;
    int code = tpz_region_map(&options, &region);
    EXPECT(code == TPZ_EINVAL && strstr(tpz_last_error(), "3 frames"));
    options.frames = FRAMES;
    code = tpz_region_map(&options, &region);
    if (code == TPZ_EACCES || code == TPZ_ENOSYS) {
        puts(tpz_last_error());
        exit(77);
    }
    EXPECT(code == TPZ_OK);
    EXPECT(tpz_region_bytes(region) == BYTES);
    return region;
}

/* Each page has its number, and a part that a system call wrote. */
static void use(tpz_region_t *region)
{
    unsigned char *memory = tpz_region_data(region);
    for (size_t page = 0; page < PAGES; page++)
        memset(memory + page * PAGE, (int)(page % 251) + 1, PAGE);
    for (size_t page = 0; page < PAGES; page++)
        for (size_t at = 0; at < PAGE; at += 1000)
            EXPECT(memory[page * PAGE + at] == page % 251 + 1);
    tpz_region_counters_t counters;
    REFUSED(tpz_region_counters(region, NULL), TPZ_EINVAL, "counters is NULL");
    EXPECT(tpz_region_counters(region, &counters) == TPZ_OK);
    EXPECT(counters.evicted >= PAGES - FRAMES && counters.fetched > 0 && counters.stored > 0);
    EXPECT(counters.damaged == 0 && counters.lost == 0);
}

static void advise(tpz_region_t *region)
{
    unsigned char *memory = tpz_region_data(region);
    REFUSED(tpz_region_touch(region, BYTES, 1, false), TPZ_EINVAL, "the region has");
    REFUSED(tpz_region_touch(region, SIZE_MAX, 2, true), TPZ_EINVAL, "the region has");
    REFUSED(tpz_region_advise(region, 0, PAGE, 9), TPZ_EINVAL, "advice 9");
    EXPECT(tpz_region_touch(region, 0, 8 * PAGE, true) == TPZ_OK);
    EXPECT(tpz_region_pin(region, 0, 8 * PAGE) == TPZ_OK);
    REFUSED(tpz_region_pin(region, 0, BYTES), TPZ_ENOMEM, "pinned");
    EXPECT(tpz_region_unpin(region, 0, 8 * PAGE) == TPZ_OK);
    EXPECT(tpz_region_advise(region, 0, 8 * PAGE, TPZ_COLD) == TPZ_OK);
    EXPECT(tpz_region_advise(region, 0, 8 * PAGE, TPZ_PAGE_OUT) == TPZ_OK);
    EXPECT(tpz_region_advise(region, 0, 8 * PAGE, TPZ_WILL_NEED) == TPZ_OK);
    EXPECT(memory[0] == 1 && memory[8 * PAGE - 1] == 8);
    EXPECT(tpz_region_advise(region, 0, PAGE, TPZ_FREE) == TPZ_OK);
    EXPECT(memory[0] == 0 && memory[PAGE] == 2);
    EXPECT(tpz_region_flush(region, 0, BYTES) == TPZ_OK && tpz_region_sync(region) == TPZ_OK);
}

/* Half of the region through a file into the other half, by plain and by positioned calls. */
static void system_calls(tpz_region_t *region)
{
    unsigned char *memory = tpz_region_data(region);
    FILE *file = tmpfile();
    EXPECT(file);
    int fd = fileno(file);
    size_t done = 0, half = BYTES / 2;
    while (done < half) {
        ptrdiff_t n = done < half / 2 ? tpz_write(fd, memory + done, half / 2 - done)
                                      : tpz_pwrite(fd, memory + done, half - done, done);
        EXPECT(n > 0);
        done += n;
    }
    rewind(file);
    for (done = 0; done < half;) {
        ptrdiff_t n = done < half / 2 ? tpz_read(fd, memory + half + done, half / 2 - done)
                                      : tpz_pread(fd, memory + half + done, half - done, done);
        EXPECT(n > 0);
        done += n;
    }
    for (size_t at = 0; at < half; at += 100)
        EXPECT(memory[at] == memory[half + at]);
    EXPECT(tpz_read(-1, memory, 1) == -1 && tpz_errno() == TPZ_EBADF);
    EXPECT(tpz_write(fd, NULL, 1) == -1 && tpz_errno() == TPZ_EINVAL);
    EXPECT(tpz_pread(1000000, memory, 1, 0) == -1 && tpz_errno() == TPZ_EBADF);
    fclose(file);
}

/* Writes all parts, of which the calls may do less. */
static void written(int fd, struct iovec *parts, int count)
{
    while (count > 0) {
        ptrdiff_t n = tpz_writev(fd, parts, count);
        EXPECT(n > 0);
        for (; count > 0 && (size_t)n >= parts->iov_len; parts++, count--)
            n -= parts->iov_len;
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= n;
        }
    }
}

/* The first half through a file into the second half, in an order of its own; it is more than there are frames. */
static void calls_with_parts(tpz_region_t *region)
{
    unsigned char *memory = tpz_region_data(region);
    enum { AT_A_TIME = 16 };
    FILE *file = tmpfile();
    EXPECT(file);
    int fd = fileno(file);
    struct iovec parts[AT_A_TIME + 1];
    memset(memory + BYTES / 2, 0, BYTES / 2); /* and it leaves again while the first half is written */
    for (int page = 0; page < PAGES / 2; page += AT_A_TIME) {
        for (int n = 0; n < AT_A_TIME; n++) /* the last ones first */
            parts[n] = (struct iovec){memory + (size_t)PAGE * (page + AT_A_TIME - 1 - n), PAGE};
        parts[AT_A_TIME] = (struct iovec){NULL, 0};
        written(fd, parts, AT_A_TIME + 1);
    }
    EXPECT(fseek(file, 0, SEEK_SET) == 0);
    for (int page = 0; page < PAGES / 2; page++) {
        unsigned char *into = memory + (size_t)PAGE * (PAGES / 2 + page);
        for (size_t done = 0; done < PAGE;) {
            size_t half = (PAGE - done) / 2;
            struct iovec two[] = {{into + done, half}, {into + done + half, PAGE - done - half}};
            ptrdiff_t n = tpz_readv(fd, two, 2);
            EXPECT(n > 0);
            done += n;
        }
    }
    for (int page = 0; page < PAGES / 2; page++) {
        int from = page / AT_A_TIME * AT_A_TIME + AT_A_TIME - 1 - page % AT_A_TIME;
        EXPECT(memcmp(memory + (size_t)PAGE * (PAGES / 2 + page), memory + (size_t)PAGE * from, PAGE) == 0);
    }
    fclose(file);
}

/* Two ends of a socket, on which nobody waits for ever. */
static void pair(int ends[2])
{
    struct timeval most = {.tv_sec = 10};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    EXPECT(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0);
}

/* Pages from one end of the region over a socket to the other end, each looked at before it is taken. */
static void sockets(tpz_region_t *region)
{
    unsigned char *memory = tpz_region_data(region);
    int ends[2];
    pair(ends);
    for (int page = 0; page < PAGES / 2; page++) {
        unsigned char *from = memory + (size_t)PAGE * page, *into = memory + (size_t)PAGE * (PAGES - 1 - page);
        memset(from, page % 251, PAGE);
        from[7] = page / 251;
        EXPECT(tpz_send(ends[0], from, PAGE, MSG_NOSIGNAL) == PAGE);
        EXPECT(tpz_recv(ends[1], into, PAGE, MSG_PEEK | MSG_WAITALL) == PAGE);
        EXPECT(into[7] == page / 251 && into[PAGE - 1] == page % 251);
        EXPECT(tpz_recv(ends[1], into, PAGE, MSG_WAITALL) == PAGE);
    }
    for (int page = 0; page < PAGES / 2; page++)
        EXPECT(memcmp(memory + (size_t)PAGE * page, memory + (size_t)PAGE * (PAGES - 1 - page), PAGE) == 0);
    EXPECT(tpz_recv(ends[1], memory, PAGE, MSG_DONTWAIT) == -1 && tpz_errno() == TPZ_EAGAIN);
    close(ends[1]);
    EXPECT(tpz_send(ends[0], memory, 1, MSG_NOSIGNAL) == -1 && tpz_errno() == EPIPE);
    close(ends[0]);
}

static void all(tpz_region_t *region)
{
    use(region);
    advise(region);
    system_calls(region);
    calls_with_parts(region);
    sockets(region);
    EXPECT(tpz_region_sync(region) == TPZ_OK);
}

static void hold(const char *address)
{
    tpz_options_t options = {
        .size = sizeof options, .node = 1, .listen = address, .memory_bytes = 2 * BYTES, .wait = TPZ_WAIT_BLOCK};
    tpz_ep_t *ep;
    EXPECT(tpz_open(&options, &ep) == TPZ_OK);
    REFUSED(tpz_hold_pages(ep, 0), TPZ_EINVAL, "memory_bytes");
    EXPECT(tpz_hold_pages(ep, PAGES + FRAMES) == TPZ_OK);
    REFUSED(tpz_hold_pages(ep, 1), TPZ_EBUSY, "served already");
    printf("%s\n", tpz_address(ep));
    fflush(stdout);
    for (;;)
        EXPECT(tpz_poll(ep, -1) == TPZ_OK);
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 3);
    if (strcmp(argv[1], "hold") == 0)
        hold(argv[2]);
    tpz_region_options_t options = {.patience_ms = 20000};
    if (strcmp(argv[1], "file") == 0) {
        wrong_options();
        options.file = argv[2];
    } else {
        options.holders = (const char *const *)&argv[2];
        options.holders_count = argc - 2;
    }
    tpz_region_t *region = mapped(options);
    all(region);
    unsigned char first[2] = {((unsigned char *)tpz_region_data(region))[PAGE], 0};
    EXPECT(tpz_region_unmap(region) == TPZ_OK);
    if (options.file) {
        region = mapped(options);
        EXPECT(((unsigned char *)tpz_region_data(region))[PAGE] == first[0]);
        EXPECT(tpz_region_unmap(region) == TPZ_OK);
    }
    printf("%d MiB in %d pages of memory: every byte was right\n", (int)(BYTES >> 20), FRAMES);
    return 0;
}
