/* Counts the system calls of chosen kinds on the files of a folder, and spoils some of them.

Preloaded, it stands between a process and the C library. A plan is a text of three lines: "kinds first last
action number", a file for the counts, and the folder (empty: any file). Of the calls whose kind is a bit of
`kinds`, those from number `first` to `last` are spoiled: action 'e' fails with the error `number`, 's' sends
the signal `number` to the process and goes on, 'h' reads or writes half of the bytes only. The file of counts
has longs: calls of these kinds, how many were spoiled, and the calls of each kind there is. It outlives the
process. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of KINDS in calls.py. */
enum kind {
    READ, PREAD, WRITE, PWRITE, FSYNC, RENAME, MKDIR, UNLINK, RMDIR, MMAP, CLOSE, OPEN, TRUNCATE, FALLOCATE,
    CHMOD, STAT, LISTDIR, N_KINDS
};
enum { HALF = -1 };
enum { CALLS, SPOILED, OF_KIND, N_COUNTS = OF_KIND + N_KINDS };

static struct {
    unsigned kinds;
    long first, last;
    char action;
    int number;
    char folder[4096];
} plan;
static _Atomic long *counts;
static _Thread_local int inside;

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Follow a plan, or none (""). Returns 0, or -1 where the text is no plan. */
int follow_plan(const char *text) {
    char record[4096] = "";
    inside = 1;
    plan.kinds = 0;
    plan.folder[0] = 0;
    int found = sscanf(text, "%u %ld %ld %c %d\n%4095[^\n]\n%4095[^\n]", &plan.kinds, &plan.first, &plan.last,
                       &plan.action, &plan.number, record, plan.folder);
    if (found >= 6) {
        int file = open(record, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (file >= 0 && ftruncate(file, N_COUNTS * sizeof *counts) == 0)
            counts = mmap(NULL, N_COUNTS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    inside = 0;
    return found >= 6 || !*text ? 0 : -1;
}

/* A plan for the start of a process; the processes that it starts follow none. */
__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("OOC_SVM_FAULT");
    if (text) {
        follow_plan(text);
        unsetenv("OOC_SVM_FAULT");
    }
}

static int begins_with_folder(const char *path) {
    size_t length = strlen(plan.folder);
    return !strncmp(path, plan.folder, length) && (!path[length] || path[length] == '/');
}

/* Whether a call concerns the folder: by its path, or where that is relative, by what it is relative to. */
static int in_folder(int descriptor, const char *path) {
    char place[4096] = "", link[64];
    if (!*plan.folder)
        return 1;
    if (path && *path == '/')
        return begins_with_folder(path);
    if (descriptor == AT_FDCWD)
        return getcwd(place, sizeof place) && begins_with_folder(place);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return readlink(link, place, sizeof place - 1) > 0 && begins_with_folder(place);
}

/* What becomes of a call: 0 if nothing, HALF, or the error that it fails with. */
static int fate(enum kind kind, int descriptor, const char *path) {
    int before = errno, found = 0;
    if (inside || !counts || !plan.kinds || !in_folder(descriptor, path)) {
        errno = before;
        return 0;
    }
    ++counts[OF_KIND + kind];
    long number = plan.kinds >> kind & 1 ? ++counts[CALLS] : 0;
    if (number && number >= plan.first && number <= plan.last) {
        ++counts[SPOILED];
        if (plan.action == 's')
            kill(getpid(), plan.number);
        else
            found = plan.action == 'h' ? HALF : plan.number;
    }
    errno = before;
    return found;
}

#define FAIL_IF(fate_of_it, failed)                                                                           \
    {                                                                                                          \
        int error = fate_of_it;                                                                                \
        if (error > 0) {                                                                                       \
            errno = error;                                                                                     \
            return failed;                                                                                     \
        }                                                                                                      \
    }
#define FILE_CALL(type, name, kind, parameters, descriptor, arguments)                                        \
    type name parameters {                                                                                     \
        REAL(name);                                                                                            \
        FAIL_IF(fate(kind, descriptor, NULL), -1)                                                              \
        return real arguments;                                                                                 \
    }
#define PATH_CALL(type, name, kind, parameters, descriptor, path, failed, arguments)                          \
    type name parameters {                                                                                     \
        REAL(name);                                                                                            \
        FAIL_IF(fate(kind, descriptor, path), failed)                                                          \
        return real arguments;                                                                                 \
    }
#define TRANSFER(name, kind, buffer, extra, rest)                                                             \
    ssize_t name extra {                                                                                       \
        REAL(name);                                                                                            \
        int found = fate(kind, file, NULL);                                                                    \
        if (found == HALF && size > 1)                                                                         \
            size /= 2;                                                                                         \
        FAIL_IF(found, -1)                                                                                     \
        return real rest;                                                                                      \
    }
#define VECTOR(name, kind, extra, rest)                                                                       \
    ssize_t name extra {                                                                                       \
        REAL(name);                                                                                            \
        struct iovec half;                                                                                     \
        int found = fate(kind, file, NULL);                                                                    \
        if (found == HALF && count > 0 && parts->iov_len > 1) {                                                \
            half = (struct iovec){parts->iov_base, parts->iov_len / 2};                                        \
            parts = &half, count = 1;                                                                          \
        }                                                                                                      \
        FAIL_IF(found, -1)                                                                                     \
        return real rest;                                                                                      \
    }

TRANSFER(read, READ, void *, (int file, void *bytes, size_t size), (file, bytes, size))
TRANSFER(pread, PREAD, void *, (int file, void *bytes, size_t size, off_t at), (file, bytes, size, at))
TRANSFER(pread64, PREAD, void *, (int file, void *bytes, size_t size, off64_t at), (file, bytes, size, at))
TRANSFER(write, WRITE, const void *, (int file, const void *bytes, size_t size), (file, bytes, size))
TRANSFER(pwrite, PWRITE, const void *, (int file, const void *bytes, size_t size, off_t at),
         (file, bytes, size, at))
TRANSFER(pwrite64, PWRITE, const void *, (int file, const void *bytes, size_t size, off64_t at),
         (file, bytes, size, at))
VECTOR(readv, READ, (int file, const struct iovec *parts, int count), (file, parts, count))
VECTOR(writev, WRITE, (int file, const struct iovec *parts, int count), (file, parts, count))
VECTOR(preadv, PREAD, (int file, const struct iovec *parts, int count, off_t at), (file, parts, count, at))
VECTOR(preadv64, PREAD, (int file, const struct iovec *parts, int count, off64_t at), (file, parts, count, at))
VECTOR(preadv2, PREAD, (int file, const struct iovec *parts, int count, off_t at, int flags),
       (file, parts, count, at, flags))
VECTOR(preadv64v2, PREAD, (int file, const struct iovec *parts, int count, off64_t at, int flags),
       (file, parts, count, at, flags))

FILE_CALL(int, fsync, FSYNC, (int file), file, (file))
FILE_CALL(int, fdatasync, FSYNC, (int file), file, (file))
FILE_CALL(int, ftruncate, TRUNCATE, (int file, off_t size), file, (file, size))
FILE_CALL(int, ftruncate64, TRUNCATE, (int file, off64_t size), file, (file, size))
FILE_CALL(int, fallocate, FALLOCATE, (int file, int mode, off_t at, off_t size), file, (file, mode, at, size))
FILE_CALL(int, fallocate64, FALLOCATE, (int file, int mode, off64_t at, off64_t size), file,
          (file, mode, at, size))
FILE_CALL(int, fchmod, CHMOD, (int file, mode_t mode), file, (file, mode))
FILE_CALL(int, fstat, STAT, (int file, struct stat *found), file, (file, found))
FILE_CALL(int, fstat64, STAT, (int file, struct stat64 *found), file, (file, found))

PATH_CALL(int, truncate, TRUNCATE, (const char *path, off_t size), AT_FDCWD, path, -1, (path, size))
PATH_CALL(int, truncate64, TRUNCATE, (const char *path, off64_t size), AT_FDCWD, path, -1, (path, size))
PATH_CALL(int, rename, RENAME, (const char *path, const char *to), AT_FDCWD, to, -1, (path, to))
PATH_CALL(int, renameat, RENAME, (int folder, const char *path, int other, const char *to), other, to, -1,
          (folder, path, other, to))
PATH_CALL(int, renameat2, RENAME, (int folder, const char *path, int other, const char *to, unsigned flags),
          other, to, -1, (folder, path, other, to, flags))
PATH_CALL(int, mkdir, MKDIR, (const char *path, mode_t mode), AT_FDCWD, path, -1, (path, mode))
PATH_CALL(int, mkdirat, MKDIR, (int folder, const char *path, mode_t mode), folder, path, -1,
          (folder, path, mode))
PATH_CALL(int, unlink, UNLINK, (const char *path), AT_FDCWD, path, -1, (path))
PATH_CALL(int, unlinkat, flags &AT_REMOVEDIR ? RMDIR : UNLINK, (int folder, const char *path, int flags),
          folder, path, -1, (folder, path, flags))
PATH_CALL(int, rmdir, RMDIR, (const char *path), AT_FDCWD, path, -1, (path))
PATH_CALL(int, chmod, CHMOD, (const char *path, mode_t mode), AT_FDCWD, path, -1, (path, mode))
PATH_CALL(int, stat, STAT, (const char *path, struct stat *found), AT_FDCWD, path, -1, (path, found))
PATH_CALL(int, stat64, STAT, (const char *path, struct stat64 *found), AT_FDCWD, path, -1, (path, found))
PATH_CALL(int, lstat, STAT, (const char *path, struct stat *found), AT_FDCWD, path, -1, (path, found))
PATH_CALL(int, lstat64, STAT, (const char *path, struct stat64 *found), AT_FDCWD, path, -1, (path, found))
PATH_CALL(int, fstatat, STAT, (int folder, const char *path, struct stat *found, int flags), folder, path, -1,
          (folder, path, found, flags))
PATH_CALL(int, fstatat64, STAT, (int folder, const char *path, struct stat64 *found, int flags), folder, path,
          -1, (folder, path, found, flags))
PATH_CALL(DIR *, opendir, LISTDIR, (const char *path), AT_FDCWD, path, NULL, (path))
PATH_CALL(DIR *, fdopendir, LISTDIR, (int folder), folder, NULL, NULL, (folder))

/* These return the error. */
int posix_fallocate(int file, off_t at, off_t size) {
    REAL(posix_fallocate);
    int error = fate(FALLOCATE, file, NULL);
    return error > 0 ? error : real(file, at, size);
}
int posix_fallocate64(int file, off64_t at, off64_t size) {
    REAL(posix_fallocate64);
    int error = fate(FALLOCATE, file, NULL);
    return error > 0 ? error : real(file, at, size);
}

/* A file whose close fails is closed all the same. */
int close(int file) {
    REAL(close);
    int error = fate(CLOSE, file, NULL), found = real(file);
    if (error <= 0)
        return found;
    errno = error;
    return -1;
}

/* Memory without a file is not counted. */
void *mmap(void *place, size_t size, int protection, int flags, int file, off_t at) {
    REAL(mmap);
    FAIL_IF(flags & MAP_ANONYMOUS ? 0 : fate(MMAP, file, NULL), MAP_FAILED)
    return real(place, size, protection, flags, file, at);
}
void *mmap64(void *place, size_t size, int protection, int flags, int file, off64_t at) {
    REAL(mmap64);
    FAIL_IF(flags & MAP_ANONYMOUS ? 0 : fate(MMAP, file, NULL), MAP_FAILED)
    return real(place, size, protection, flags, file, at);
}

#define OPEN_CALL(name, parameters, descriptor, arguments)                                                    \
    int name parameters {                                                                                      \
        REAL(name);                                                                                            \
        mode_t mode = 0;                                                                                       \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                   \
            va_list rest;                                                                                      \
            va_start(rest, flags);                                                                             \
            mode = va_arg(rest, mode_t);                                                                       \
            va_end(rest);                                                                                      \
        }                                                                                                      \
        FAIL_IF(fate(OPEN, descriptor, path), -1)                                                              \
        return real arguments;                                                                                 \
    }

OPEN_CALL(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN_CALL(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN_CALL(openat, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
OPEN_CALL(openat64, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
