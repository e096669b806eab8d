// Preload shim: a volume of its own for one process. The file named by FLAGSTONE_VOLUME_FREE holds the
// number of bytes that are free when the process starts. What makes a file longer uses them up, what
// removes or shortens one gives them back; beyond, writing fails with ENOSPC, and statfs tells.
// Each file costs a block of its own.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BLOCK 4096LL
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long long left = -1;

static int real_open(const char *path, int flags, mode_t mode) {
  int (*next)(const char *, int, ...) =
      (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
  return next(path, flags, mode);
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FLAGSTONE_VOLUME_FREE");
  FILE *file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return;
  if (fscanf(file, "%lld", &left) != 1) left = -1;
  fclose(file);
}

/** Takes up to `wanted` bytes; negative gives back. */
static long long take(long long wanted) {
  pthread_mutex_lock(&lock);
  long long got = left >= 0 && wanted > left ? left : wanted;
  if (left >= 0) left -= got;
  pthread_mutex_unlock(&lock);
  return got;
}

/** How much of `count` bytes at `at` may be written; 0 with ENOSPC. */
static size_t admitted(int fd, long long at, size_t count) {
  struct stat about;
  if (left < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return count;
  long long longer = at + (long long)count - about.st_size;
  if (longer <= 0) return count;
  long long room = (long long)count - longer + take(longer);
  if (room > 0) return (size_t)room;
  errno = ENOSPC;
  return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  size_t room = admitted(fd, at, count);
  if (room == 0 && count > 0) return -1;
  ssize_t (*next)(int, const void *, size_t, off64_t) =
      (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  return next(fd, bytes, room, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return pwrite64(fd, bytes, count, at);
}

ssize_t write(int fd, const void *bytes, size_t count) {
  ssize_t (*next)(int, const void *, size_t) =
      (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (left < 0) return next(fd, bytes, count);
  off_t at = lseek(fd, 0, SEEK_CUR);
  if (at < 0) return next(fd, bytes, count);
  size_t room = admitted(fd, at, count);
  if (room == 0 && count > 0) return -1;
  return next(fd, bytes, room);
}

static int opened(const char *path, int flags, mode_t mode) {
  struct stat about;
  int isThere = stat(path, &about) == 0;
  if (left >= 0 && (flags & O_CREAT) && !isThere && take(BLOCK) < BLOCK) {
    errno = ENOSPC;
    return -1;
  }
  int fd = real_open(path, flags, mode);
  if (fd >= 0 && left >= 0 && isThere && (flags & O_TRUNC)) take(-about.st_size);
  return fd;
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(path, flags, mode);
}

int unlink(const char *path) {
  struct stat about;
  int isFile = stat(path, &about) == 0 && S_ISREG(about.st_mode);
  int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
  int result = next(path);
  if (result == 0 && isFile && left >= 0) take(-about.st_size - BLOCK);
  return result;
}

static int tell(struct statfs *about) {
  if (left >= 0) about->f_bavail = about->f_bfree = (unsigned long)(left / about->f_bsize);
  return 0;
}

int statfs64(const char *path, struct statfs64 *about) {
  int (*next)(const char *, struct statfs64 *) =
      (int (*)(const char *, struct statfs64 *))dlsym(RTLD_NEXT, "statfs64");
  int result = next(path, about);
  return result == 0 ? tell((struct statfs *)about) : result;
}

int statfs(const char *path, struct statfs *about) {
  return statfs64(path, (struct statfs64 *)about);
}
