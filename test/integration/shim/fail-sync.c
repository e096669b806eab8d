// Preload shim: once the file named by FLAGSTONE_FAIL_SYNC exists, every fsync and fdatasync of the
// process fails with EIO, as on a disk that dies under it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int broken(void) {
  const char *path = getenv("FLAGSTONE_FAIL_SYNC");
  return path != NULL && access(path, F_OK) == 0;
}

static int call(const char *name, int fd) {
  if (broken()) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) { return call("fsync", fd); }

int fdatasync(int fd) { return call("fdatasync", fd); }
