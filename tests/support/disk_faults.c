/* Makes the disk below one directory fail, for the process that preloads it: $DISK_FAULTS_DIR is the directory, and
 * the file $DISK_FAULTS_MODE has one word: "full", "read_only", "error" or "slow"; with anything else it works.
 * A slow call goes on once the word is another one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & O_CREAT))

static char mode(void) {
    const char *path = getenv("DISK_FAULTS_MODE");
    char word = 'o';
    int file = path ? REAL(open)(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, &word, 1) != 1) word = 'o';
        REAL(close)(file);
    }
    return word;
}

static int is_below(const char *path) {
    const char *directory = getenv("DISK_FAULTS_DIR");
    return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static int file_is_below(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_below(path);
}

static int place_is_below(int directory, const char *path) {
    return path[0] == '/' ? is_below(path) : directory >= 0 && file_is_below(directory);
}

/* The error of a call that changes the disk, 0 for none; `grows` is one that needs room. */
static int fault(int grows) {
    int saved = errno;
    char now;
    while ((now = mode()) == 's') usleep(10000);
    errno = saved;
    if (now == 'f' && grows) return ENOSPC;
    if (now == 'r') return EROFS;
    if (now == 'e') return EIO;
    return 0;
}

#define CHECKED(below, grows)                    \
    do {                                         \
        int error = (below) ? fault(grows) : 0;  \
        if (error) { errno = error; return -1; } \
    } while (0)

ssize_t write(int file, const void *data, size_t size) {
    CHECKED(file > 2 && file_is_below(file), 1);
    return REAL(write)(file, data, size);
}

int fsync(int file) {
    CHECKED(file_is_below(file), 0);
    return REAL(fsync)(file);
}

int fdatasync(int file) {
    CHECKED(file_is_below(file), 0);
    return REAL(fdatasync)(file);
}

#define OPENED(name)                                                                       \
    int name(const char *path, int flags, ...) {                                           \
        va_list rest; va_start(rest, flags); mode_t bits = va_arg(rest, mode_t); va_end(rest); \
        CHECKED(WRITES(flags) && place_is_below(-1, path), 0);                             \
        return REAL(name)(path, flags, bits);                                              \
    }
OPENED(open)
OPENED(open64)

#define OPENED_AT(name)                                                                    \
    int name(int directory, const char *path, int flags, ...) {                            \
        va_list rest; va_start(rest, flags); mode_t bits = va_arg(rest, mode_t); va_end(rest); \
        CHECKED(WRITES(flags) && place_is_below(directory, path), 0);                      \
        return REAL(name)(directory, path, flags, bits);                                   \
    }
OPENED_AT(openat)
OPENED_AT(openat64)

int mkdir(const char *path, mode_t bits) {
    CHECKED(is_below(path), 1);
    return REAL(mkdir)(path, bits);
}

int rename(const char *from, const char *to) {
    CHECKED(is_below(to), 0);
    return REAL(rename)(from, to);
}

int renameat(int from, const char *old, int to, const char *new) {
    CHECKED(place_is_below(to, new), 0);
    return REAL(renameat)(from, old, to, new);
}
