/* What the test programs expect; they end at the first thing that is otherwise. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trapeze.h>

#define EXPECT(condition)                                                                             \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #condition, tpz_last_error()); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The call is refused with this code, and the error's text has these words. */
#define REFUSED(call, error, words)                     \
    do {                                                \
        EXPECT((call) == (error));                      \
        EXPECT(tpz_errno() == (error));                 \
        EXPECT(strstr(tpz_last_error(), (words)));      \
    } while (0)

#endif
