import { expect, test } from "vitest";
import { parseTrace, syncsBetween } from "../../support/strace.ts";

const hex = (text: string): string => text.replace(/../g, "\\x$&");
const request = `[pid 11] read(20, "${hex("3206000161000778")}", 65536) = 8`;
const answer = `[pid 11] write(20, "${hex("40020007")}", 4) = 4`;
const count = (...lines: string[]) =>
  syncsBetween(
    parseTrace(["strace: Process 11 attached with 8 threads", ...lines].join("\n")),
    Buffer.from("32060001", "hex"),
    Buffer.from("40020007", "hex"),
  );

test("a sync between request and answer counts", () => {
  expect(count(request, "[pid 12] fdatasync(9) = 0", answer)).toBe(1);
});

test("a sync that other threads interrupted counts once it is whole", () => {
  const begun = "[pid 12] fdatasync(9 <unfinished ...>";
  const ended = "[pid 12] <... fdatasync resumed>) = 0";
  expect(count(request, begun, `[pid 11] write(5, "${hex("01")}", 1) = 1`, ended, answer)).toBe(1);
  expect(count(request, begun, answer, ended)).toBe(0);
  expect(count(begun, request, ended, answer)).toBe(0);
});

test("a sync before the request or behind the answer does not count", () => {
  expect(count("fsync(9) = 0", request, answer, "[pid 12] fdatasync(9) = 0")).toBe(0);
});

test("bytes of a call in two parts and of several buffers are joined", () => {
  const split = [
    "[pid 11] read(20,  <unfinished ...>",
    `[pid 11] <... read resumed>"${hex("32060001")}", 65536) = 4`,
    "[pid 12] fdatasync(9) = 0",
    `[pid 11] writev(20, [{iov_base="${hex("4002")}", iov_len=2}, {iov_base="${hex("0007")}"}], 2) = 4`,
  ];
  expect(count(...split)).toBe(1);
});

test("a trace without the answer proves nothing", () => {
  expect(count(request, "[pid 12] fdatasync(9) = 0")).toBeUndefined();
});
