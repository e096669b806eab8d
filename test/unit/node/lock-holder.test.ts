import { expect, test } from "vitest";
import { holderIn, lockHolder } from "../../../src/node/lock-holder.ts";

const table = `1: FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF
2: POSIX  ADVISORY  WRITE 4711 fe:00:78 0 EOF
3: POSIX  ADVISORY  READ  12 fe:00:78 0 EOF
4: POSIX  ADVISORY  WRITE 0 fe:00:79 0 EOF
5: POSIX  ADVISORY  WRITE 5 fe:00:80 0 EOF
6: POSIX  ADVISORY  WRITE 6 fe:01:80 0 EOF
`;

test("the holder of a lock is the process that the system names for its inode", () => {
  expect(holderIn(table, 78)).toBe(4711);
});

test("nobody is named for other locks, another container's process, or two candidates", () => {
  for (const inode of [7, 77, 79, 80, 8]) expect(holderIn(table, inode)).toBeUndefined();
});

test("a file that is not there has no holder", () => {
  expect(lockHolder("/nonexistent/LOCK")).toBeUndefined();
});
