/* For LD_PRELOAD by failing_calls.py: counts the calls that change files below a folder, and fails one of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Shared by the processes that are forked later. */
static struct {
    long calls, fail_at;
    int error, lasts, log;
    char below[PATH_MAX];
} *state;

/* Begin to count calls below a folder, and write each with its path to the file `log`. The call number fail_at, from 1,
   fails with `error`; with `lasts`, as on a full disk, so do all later ones that need room. */
void fail_call(const char *below, long fail_at, int error, int lasts, int log) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    state->fail_at = fail_at, state->error = error, state->lasts = lasts, state->log = log;
    strncpy(state->below, below, PATH_MAX - 1);
}

/* Return whether a call fails. folder: the file, if path is NULL, else the folder that a relative path begins at. */
static int fails(const char *function, int folder, const char *path, int needs_room) {
    char place[64], whole[2 * PATH_MAX] = "", line[2 * PATH_MAX + 64];
    if (!state) return 0;
    if (!path || path[0] != '/') {
        if (folder == AT_FDCWD)
            strcpy(place, "/proc/self/cwd");
        else
            snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
        if (readlink(place, whole, PATH_MAX - 1) < 0) return 0;
        if (path) strcat(whole, "/");
    }
    if (path) strncat(whole, path, PATH_MAX - 1);
    if (strncmp(whole, state->below, strlen(state->below))) return 0;
    long number = __atomic_add_fetch(&state->calls, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_write, state->log, line, snprintf(line, sizeof line, "%s %s\n", function, whole));
    if (number != state->fail_at && !(state->lasts && needs_room && number > state->fail_at)) return 0;
    errno = state->error;
    return 1;
}

#define CALL(type, name, parameters, arguments, folder, path, needs_room)      \
    type name parameters {                                                     \
        static type(*real) parameters;                                         \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);         \
        return fails(#name, folder, path, needs_room) ? -1 : real arguments;   \
    }

CALL(ssize_t, write, (int file, const void *data, size_t size), (file, data, size), file, NULL, 1)
CALL(ssize_t, writev, (int file, const struct iovec *data, int n), (file, data, n), file, NULL, 1)
CALL(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at), file, NULL, 1)
CALL(ssize_t, pwrite64, (int file, const void *data, size_t size, off_t at), (file, data, size, at), file, NULL, 1)
CALL(ssize_t, sendfile, (int file, int from, off_t *at, size_t size), (file, from, at, size), file, NULL, 1)
CALL(ssize_t, sendfile64, (int file, int from, off_t *at, size_t size), (file, from, at, size), file, NULL, 1)
CALL(int, ftruncate, (int file, off_t size), (file, size), file, NULL, 1)
CALL(int, ftruncate64, (int file, off_t size), (file, size), file, NULL, 1)
CALL(int, fsync, (int file), (file), file, NULL, 1)
CALL(int, fdatasync, (int file), (file), file, NULL, 1)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, 1)
CALL(int, symlink, (const char *to, const char *path), (to, path), AT_FDCWD, path, 1)
CALL(int, link, (const char *from, const char *path), (from, path), AT_FDCWD, path, 1)
CALL(int, rename, (const char *from, const char *path), (from, path), AT_FDCWD, path, 0)
CALL(int, unlink, (const char *path), (path), AT_FDCWD, path, 0)
CALL(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), folder, path, 0)
CALL(int, rmdir, (const char *path), (path), AT_FDCWD, path, 0)

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))
#define OPEN(name, parameters, arguments, folder)                                                   \
    int name parameters {                                                                           \
        static int(*real) parameters;                                                               \
        va_list more;                                                                               \
        va_start(more, flags);                                                                      \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                   \
        va_end(more);                                                                               \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                               \
        return WRITES(flags) && fails(#name, folder, path, flags & O_CREAT) ? -1 : real arguments;  \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)

#define FOPEN(name)                                                                            \
    FILE *name(const char *path, const char *mode) {                                           \
        static FILE *(*real)(const char *, const char *);                                      \
        if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, #name);    \
        return strpbrk(mode, "wa+") && fails(#name, AT_FDCWD, path, 1) ? NULL : real(path, mode); \
    }

FOPEN(fopen)
FOPEN(fopen64)
