/*
 * record - a preload shim that writes down what a process does to the files below one folder:
 * writes with their bytes, syncs, creations, renames, removals, truncations, in one order.
 *
 *   build:  gcc -O2 -Wall -Wextra -shared -fPIC -o record.so record.c -ldl -lpthread
 *   use:    FLAGSTONE_RECORD_ROOT=/abs/data FLAGSTONE_RECORD_FILE=/abs/record LD_PRELOAD=... cmd
 *
 * What holds: a recorded call runs under one lock, so the order of entries is the order in which the
 * kernel saw the calls. A sync is two entries: it covers what stands before its begin, and only once
 * its end is there. Only calls that succeeded are recorded (a sync that failed has no end). Stamps
 * are CLOCK_MONOTONIC, taken before the call (at a sync's end: after it), so that another process
 * can tell what it knew before an entry.
 *
 * FLAGSTONE_RECORD_MARKS names a file outside of the folder: writes to it become marks in the order.
 * FLAGSTONE_RECORD_SKIP_SYNC=1 makes every sync of the folder a lie: it does nothing and says so
 * nowhere. That is how a suite shows that it would notice a program that does not sync.
 *
 * A call that changes files in a way the reader cannot rebuild (a writable shared mapping, a copy
 * inside the kernel) is recorded as unsupported, and the reader refuses the record.
 * Layout of an entry: test/crash/record-reader.ts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Some C libraries define these as macros. */
#undef fwrite_unlocked
#undef fflush_unlocked

enum {
    OPEN = 1, WRITE, TRUNCATE, TRUNCATE_PATH, ALLOCATE, SYNC_BEGIN, SYNC_END,
    RENAME, UNLINK, MKDIR, RMDIR, LINK, MARK, UNSUPPORTED,
};
enum { CREATED = 1, EMPTIED = 2, FOLDER = 4 };
enum { FDS_MAX = 1 << 16 };

struct entry {
    uint32_t size;
    uint8_t kind, flags;
    uint16_t path_len, path2_len, reserved;
    uint64_t handle, stamp_ns, number, data_len;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char root[PATH_MAX], marks[PATH_MAX];
static size_t root_len;
static int record_fd = -1;
static bool skip_sync;
static uint32_t last_handle;
/* What an open file descriptor stands for: 0 nothing of ours, -1 the marks, else a handle. */
static int64_t handles[FDS_MAX];
/* The file it stood for then: a descriptor may be closed and used again behind our back. */
static dev_t devices[FDS_MAX];
static ino_t inodes[FDS_MAX];
/* For a stdio stream: a second descriptor to read back what libc wrote, plus one; and up to where. */
static int readers[FDS_MAX];
static int64_t seen_up_to[FDS_MAX];

static void start(void) {
    const char *file = getenv("FLAGSTONE_RECORD_FILE"), *folder = getenv("FLAGSTONE_RECORD_ROOT");
    const char *mark = getenv("FLAGSTONE_RECORD_MARKS");
    if (file == NULL || folder == NULL) return;
    snprintf(root, sizeof root, "%s", folder);
    root_len = strlen(root);
    snprintf(marks, sizeof marks, "%s", mark == NULL ? "" : mark);
    skip_sync = getenv("FLAGSTONE_RECORD_SKIP_SYNC") != NULL;
    record_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                             0600);
    if (record_fd < 0) { perror("record: cannot open the record"); abort(); }
}

static bool recording(void) { pthread_once(&once, start); return record_fd >= 0; }

#define REAL(name) ({ \
    static __typeof__(&name) f; \
    if (!f) f = (__typeof__(f))dlsym(RTLD_NEXT, #name); \
    f; \
})

static uint64_t stamp(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void put(struct entry e, const char *path, const char *path2, const void *data) {
    e.path_len = path ? (uint16_t)strlen(path) : 0;
    e.path2_len = path2 ? (uint16_t)strlen(path2) : 0;
    e.size = (uint32_t)(sizeof e + e.path_len + e.path2_len + e.data_len);
    struct iovec parts[4] = {
        { &e, sizeof e }, { (void *)path, e.path_len }, { (void *)path2, e.path2_len },
        { (void *)data, e.data_len },
    };
    int saved = errno;
    ssize_t done = syscall(SYS_writev, record_fd, parts, 4);
    if (done != (ssize_t)e.size) { fputs("record: short record\n", stderr); abort(); }
    errno = saved;
}

/* The absolute form of a path as given to a call, and whether it lies below the folder. */
static bool ours(int dir, const char *path, char *out) {
    if (!recording() || path == NULL) return false;
    if (path[0] == '/') snprintf(out, PATH_MAX, "%s", path);
    else {
        char base[PATH_MAX] = "", link[64];
        if (dir == AT_FDCWD) { if (getcwd(base, sizeof base) == NULL) return false; }
        else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            ssize_t n = readlink(link, base, sizeof base - 1);
            if (n < 0) return false;
            base[n] = 0;
        }
        if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return false;
    }
    return strncmp(out, root, root_len) == 0 && (out[root_len] == '/' || out[root_len] == 0);
}

static int64_t handle_of(int fd) {
    if (fd < 0 || fd >= FDS_MAX || record_fd < 0 || handles[fd] == 0) return 0;
    struct stat now;
    bool same = fstat(fd, &now) == 0 && now.st_dev == devices[fd] && now.st_ino == inodes[fd];
    if (!same) handles[fd] = 0;
    return handles[fd];
}

static void remember(int fd, int64_t handle, const struct stat *file) {
    handles[fd] = handle;
    devices[fd] = file->st_dev;
    inodes[fd] = file->st_ino;
}

/* ---------------------------------------------------------------- opening */

static int open_recorded(int dir, const char *path, int flags, mode_t mode) {
    int (*real)(int, const char *, int, ...) = REAL(openat);
    char full[PATH_MAX];
    bool inside = ours(dir, path, full);
    bool mark = !inside && recording() && marks[0] && path && strcmp(path, marks) == 0;
    if (!inside && !mark) {
        int fd = real(dir, path, flags, mode);
        if (fd >= 0 && fd < FDS_MAX) handles[fd] = 0;
        return fd;
    }
    if (mark) {
        int fd = real(dir, path, flags, mode);
        struct stat now;
        if (fd >= 0 && fd < FDS_MAX && fstat(fd, &now) == 0) remember(fd, -1, &now);
        return fd;
    }
    pthread_mutex_lock(&lock);
    struct entry e = { .kind = OPEN, .stamp_ns = stamp() };
    struct stat before;
    bool existed = stat(full, &before) == 0;
    int fd = real(dir, path, flags, mode);
    if (fd >= FDS_MAX) { fputs("record: too many open files\n", stderr); abort(); }
    if (fd >= 0) {
        struct stat now;
        if (fstat(fd, &now) != 0) abort();
        if (S_ISDIR(now.st_mode)) e.flags |= FOLDER;
        if (!existed) e.flags |= CREATED;
        else if ((flags & O_TRUNC) && before.st_size > 0) e.flags |= EMPTIED;
        e.handle = ((uint64_t)getpid() << 32) | ++last_handle;
        remember(fd, (int64_t)e.handle, &now);
        if ((flags & O_TMPFILE) == O_TMPFILE) e.kind = UNSUPPORTED;
        put(e, full, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE_ARGUMENT(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags)
    return open_recorded(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags)
    return open_recorded(AT_FDCWD, path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags)
    return open_recorded(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags)
    return open_recorded(dir, path, flags, mode);
}
int creat(const char *path, mode_t mode) {
    return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int __open_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }

int close(int fd) {
    if (fd >= 0 && fd < FDS_MAX) handles[fd] = 0;
    return REAL(close)(fd);
}
static int copied(int from, int to) {
    if (from >= 0 && from < FDS_MAX && to >= 0 && to < FDS_MAX) {
        handles[to] = handles[from];
        devices[to] = devices[from];
        inodes[to] = inodes[from];
    }
    return to;
}
int dup(int fd) { return copied(fd, REAL(dup)(fd)); }
int dup2(int fd, int to) { return copied(fd, REAL(dup2)(fd, to)); }
int dup3(int fd, int to, int flags) { return copied(fd, REAL(dup3)(fd, to, flags)); }

/* ---------------------------------------------------------------- bytes */

static void put_bytes(int fd, uint64_t at_ns, int64_t position, const void *data, ssize_t size) {
    int64_t handle = handle_of(fd);
    struct entry e = { .stamp_ns = at_ns, .handle = (uint64_t)handle, .data_len = (uint64_t)size };
    e.kind = handle == -1 ? MARK : WRITE;
    /* Without a position the call moved the file's own: it now stands behind the bytes. */
    if (position < 0 && handle != -1) position = lseek(fd, 0, SEEK_CUR) - size;
    e.number = (uint64_t)(position < 0 ? 0 : position);
    put(e, NULL, NULL, data);
}

static ssize_t write_recorded(int fd, const void *data, size_t size, int64_t position) {
    pthread_mutex_lock(&lock);
    uint64_t at_ns = stamp();
    ssize_t n = position < 0 ? REAL(write)(fd, data, size)
                             : REAL(pwrite64)(fd, data, size, position);
    if (n > 0) put_bytes(fd, at_ns, position, data, n);
    pthread_mutex_unlock(&lock);
    return n;
}

static ssize_t writev_recorded(int fd, const struct iovec *parts, int count, int64_t position) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    char *joined = malloc(total + 1);
    if (joined == NULL) { errno = ENOMEM; return -1; }
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        memcpy(joined + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    ssize_t n = write_recorded(fd, joined, total, position);
    free(joined);
    return n;
}

ssize_t write(int fd, const void *data, size_t size) {
    return handle_of(fd) == 0 ? REAL(write)(fd, data, size) : write_recorded(fd, data, size, -1);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    if (handle_of(fd) == 0) return REAL(pwrite)(fd, data, size, at);
    return write_recorded(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    if (handle_of(fd) == 0) return REAL(pwrite64)(fd, data, size, at);
    return write_recorded(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (handle_of(fd) == 0) return REAL(writev)(fd, parts, count);
    return writev_recorded(fd, parts, count, -1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    if (handle_of(fd) == 0) return REAL(pwritev)(fd, parts, count, at);
    return writev_recorded(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    if (handle_of(fd) == 0) return REAL(pwritev64)(fd, parts, count, at);
    return writev_recorded(fd, parts, count, at);
}

/* ---------------------------------------------------------------- streams */

/*
 * libc writes a stream's buffer from inside, past every hook. So after each call on a stream of ours
 * the bytes that reached the kernel since the last one are read back from the file.
 */
static FILE *fopen_recorded(const char *path, const char *mode,
                            FILE *(*real)(const char *, const char *)) {
    char full[PATH_MAX];
    if (!ours(AT_FDCWD, path, full) || mode[0] == 'r') return real(path, mode);
    pthread_mutex_lock(&lock);
    struct entry e = { .kind = OPEN, .stamp_ns = stamp() };
    struct stat before, now;
    bool existed = stat(full, &before) == 0;
    FILE *stream = real(path, mode);
    if (stream != NULL) {
        int fd = fileno(stream);
        if (fd < 0 || fd >= FDS_MAX || fstat(fd, &now) != 0) abort();
        if (!existed) e.flags |= CREATED;
        else if (mode[0] == 'w' && before.st_size > 0) e.flags |= EMPTIED;
        e.handle = ((uint64_t)getpid() << 32) | ++last_handle;
        remember(fd, (int64_t)e.handle, &now);
        readers[fd] = 1 + (int)syscall(SYS_openat, AT_FDCWD, full, O_RDONLY | O_CLOEXEC);
        seen_up_to[fd] = now.st_size;
        put(e, full, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
    return stream;
}
FILE *fopen(const char *path, const char *mode) { return fopen_recorded(path, mode, REAL(fopen)); }
FILE *fopen64(const char *path, const char *mode) {
    return fopen_recorded(path, mode, REAL(fopen64));
}

static void put_stream(int fd, uint64_t at_ns) {
    struct stat now;
    if (readers[fd] <= 0 || fstat(fd, &now) != 0) return;
    while (seen_up_to[fd] < now.st_size) {
        static char piece[1 << 20];
        ssize_t n = pread(readers[fd] - 1, piece, sizeof piece, seen_up_to[fd]);
        if (n <= 0) { fputs("record: cannot read a stream back\n", stderr); abort(); }
        struct entry e = { .kind = WRITE, .stamp_ns = at_ns, .handle = (uint64_t)handles[fd],
            .number = (uint64_t)seen_up_to[fd], .data_len = (uint64_t)n };
        put(e, NULL, NULL, piece);
        seen_up_to[fd] += n;
    }
}

static int stream_of(FILE *stream) {
    int fd = stream == NULL || record_fd < 0 ? -1 : fileno(stream);
    return fd >= 0 && fd < FDS_MAX && readers[fd] > 0 && handle_of(fd) > 0 ? fd : -1;
}

#define ON_STREAM(type, call) do { \
    int fd = stream_of(stream); \
    if (fd < 0) return call; \
    pthread_mutex_lock(&lock); \
    uint64_t at_ns = stamp(); \
    type result = call; \
    put_stream(fd, at_ns); \
    pthread_mutex_unlock(&lock); \
    return result; \
} while (0)

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    ON_STREAM(size_t, REAL(fwrite)(data, size, count, stream));
}
size_t fwrite_unlocked(const void *data, size_t size, size_t count, FILE *stream) {
    ON_STREAM(size_t, REAL(fwrite_unlocked)(data, size, count, stream));
}
int fflush(FILE *stream) { ON_STREAM(int, REAL(fflush)(stream)); }
int fflush_unlocked(FILE *stream) { ON_STREAM(int, REAL(fflush_unlocked)(stream)); }
int fclose(FILE *stream) {
    int fd = stream_of(stream);
    if (fd < 0) return REAL(fclose)(stream);
    fflush(stream);
    pthread_mutex_lock(&lock);
    syscall(SYS_close, readers[fd] - 1);
    readers[fd] = 0;
    handles[fd] = 0;
    pthread_mutex_unlock(&lock);
    return REAL(fclose)(stream);
}

/* ---------------------------------------------------------------- sizes */

#define WITH_ENTRY(call, made) do { \
    pthread_mutex_lock(&lock); \
    struct entry e = made; \
    e.stamp_ns = stamp(); \
    int failed = (call); \
    if (!failed) put(e, first, second, NULL); \
    pthread_mutex_unlock(&lock); \
    return failed; \
} while (0)
#define ENTRY(...) ((struct entry){ __VA_ARGS__ })

#define TRUNCATE_FD(name, type) int name(int fd, type size) { \
    const char *first = NULL, *second = NULL; \
    int64_t handle = handle_of(fd); \
    if (handle <= 0) return REAL(name)(fd, size); \
    WITH_ENTRY(REAL(name)(fd, size), \
        ENTRY(.kind = TRUNCATE, .handle = (uint64_t)handle, .number = (uint64_t)size)); \
}
TRUNCATE_FD(ftruncate, off_t)
TRUNCATE_FD(ftruncate64, off64_t)

#define TRUNCATE_NAMED(name, type) int name(const char *path, type size) { \
    char full[PATH_MAX]; \
    const char *first = full, *second = NULL; \
    if (!ours(AT_FDCWD, path, full)) return REAL(name)(path, size); \
    WITH_ENTRY(REAL(name)(path, size), ENTRY(.kind = TRUNCATE_PATH, .number = (uint64_t)size)); \
}
TRUNCATE_NAMED(truncate, off_t)
TRUNCATE_NAMED(truncate64, off64_t)

/* Only growth with zeros is understood; other modes are refused by the reader. */
#define ALLOCATE_FD(name, head, pass, mode, type) int name head { \
    const char *first = NULL, *second = NULL; \
    int64_t handle = handle_of(fd); \
    if (handle <= 0) return REAL(name) pass; \
    WITH_ENTRY(REAL(name) pass, \
        ENTRY(.kind = (mode) ? UNSUPPORTED : ALLOCATE, .handle = (uint64_t)handle, \
        .number = (uint64_t)(at + size))); \
}
ALLOCATE_FD(fallocate, (int fd, int how, off_t at, off_t size), (fd, how, at, size), how, off_t)
ALLOCATE_FD(fallocate64, (int fd, int how, off64_t at, off64_t size), (fd, how, at, size), how,
            off64_t)
ALLOCATE_FD(posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), 0, off_t)
ALLOCATE_FD(posix_fallocate64, (int fd, off64_t at, off64_t size), (fd, at, size), 0, off64_t)

/* ---------------------------------------------------------------- syncs */

static int sync_recorded(int fd, int (*real)(int)) {
    int64_t handle = handle_of(fd);
    if (handle <= 0) return real(fd);
    if (skip_sync) return 0;
    static uint64_t tokens;
    pthread_mutex_lock(&lock);
    struct entry e = { .kind = SYNC_BEGIN, .handle = (uint64_t)handle, .stamp_ns = stamp(),
        .number = ++tokens };
    put(e, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    int failed = real(fd);
    if (failed) return failed;
    pthread_mutex_lock(&lock);
    e.kind = SYNC_END;
    e.stamp_ns = stamp();
    put(e, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return 0;
}
int fsync(int fd) { return sync_recorded(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_recorded(fd, REAL(fdatasync)); }

/* ---------------------------------------------------------------- names */

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX];
    const char *first = a, *second = b;
    bool inside = ours(from_dir, from, a), target = ours(to_dir, to, b);
    if (!inside && !target) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    bool plain = inside && target && (flags & ~1u) == 0;
    WITH_ENTRY((int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags),
        ENTRY(.kind = plain ? RENAME : UNSUPPORTED));
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return renameat2(from_dir, from, to_dir, to, 0);
}

int unlinkat(int dir, const char *path, int flags) {
    char full[PATH_MAX];
    const char *first = full, *second = NULL;
    if (!ours(dir, path, full)) return REAL(unlinkat)(dir, path, flags);
    WITH_ENTRY(REAL(unlinkat)(dir, path, flags),
        ENTRY(.kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int failed = unlink(path);
    return failed && errno == EISDIR ? rmdir(path) : failed;
}

int mkdirat(int dir, const char *path, mode_t mode) {
    char full[PATH_MAX];
    const char *first = full, *second = NULL;
    if (!ours(dir, path, full)) return REAL(mkdirat)(dir, path, mode);
    WITH_ENTRY(REAL(mkdirat)(dir, path, mode), ENTRY(.kind = MKDIR));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char a[PATH_MAX], b[PATH_MAX];
    const char *first = a, *second = b;
    bool inside = ours(from_dir, from, a), target = ours(to_dir, to, b);
    if (!target) return REAL(linkat)(from_dir, from, to_dir, to, flags);
    WITH_ENTRY(REAL(linkat)(from_dir, from, to_dir, to, flags),
        ENTRY(.kind = inside ? LINK : UNSUPPORTED));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* ---------------------------------------------------------------- what cannot be rebuilt */

static void put_unsupported(int fd, const char *what) {
    int64_t handle = handle_of(fd);
    if (handle <= 0) return;
    pthread_mutex_lock(&lock);
    struct entry e = { .kind = UNSUPPORTED, .handle = (uint64_t)handle, .stamp_ns = stamp() };
    put(e, what, NULL, NULL);
    pthread_mutex_unlock(&lock);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED)) put_unsupported(fd, "mmap");
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t size,
                        unsigned flags) {
    put_unsupported(to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, at, to, to_at, size, flags);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    put_unsupported(to, "sendfile");
    return syscall(SYS_sendfile, to, from, at, size);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    put_unsupported(to, "sendfile");
    return syscall(SYS_sendfile, to, from, at, size);
}
