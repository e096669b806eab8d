import { expect, test } from "vitest";
import type { BoundListener } from "../../../src/node/assemble.ts";
import { type BannerFacts, bannerLines, weakGroupsOf } from "../../../src/node/banner.ts";
import { isLoopback } from "../../../src/node/config/security-rules.ts";

function listener(host: string, port: number, more: Partial<BoundListener> = {}): BoundListener {
  return { name: "l", type: "tcp", host, port, authentication: ["anonymous"], ...more };
}

const facts: BannerFacts = {
  version: "0.1.0",
  listeners: [listener("127.0.0.1", 1883)],
  admin: undefined,
  adminTaken: undefined,
  firstKey: undefined,
  dataDir: "./data",
  freeBytes: 12.3 * 2 ** 30,
  totalBytes: 50 * 2 ** 30,
  fileSystem: "ext4",
  weakGroups: [],
  command: "node dist/cli/main.js",
  readyMs: 122.6,
};

test("the start says version, address, who may connect, data, durability, what to try, and ready", () => {
  expect(bannerLines(facts)).toEqual([
    "Flagstone 0.1.0",
    "  mqtt       127.0.0.1:1883  (anonymous, loopback only)",
    "  data       ./data  (12.3 GiB free of 50.0 GiB, ext4)",
    "  durability acked means synced to disk",
    "  try        node dist/cli/main.js sub -h 127.0.0.1 -p 1883 -t 'demo/#' -v",
    "             node dist/cli/main.js pub -h 127.0.0.1 -p 1883 -t demo/hello -m world",
    "ready mqtt=127.0.0.1:1883 admin=off ms=123",
  ]);
});

test("twelve lines at most, the last one for programs, however many listeners there are", () => {
  const listeners = Array.from({ length: 50 }, (_, index) => listener("::1", 1000 + index));
  const admin = { host: "::1", port: 7 };
  const lines = bannerLines({ ...facts, listeners, admin, firstKey: "k" });
  expect(lines.length).toBeLessThanOrEqual(12);
  expect(lines.at(-1)).toBe("ready mqtt=[::1]:1000 admin=[::1]:7 ms=123");
});

test("an admin port is told with its address, and the first API key once", () => {
  const admin = { host: "127.0.0.1", port: 18083 };
  const key = `fs_${"a".repeat(8)}_${"b".repeat(43)}`;
  const lines = bannerLines({ ...facts, admin, firstKey: key });
  const url = "http://127.0.0.1:18083";
  const at = lines.indexOf(`  admin      ${url}  (its first key, role admin, is shown this once)`);
  expect(lines[at + 1]).toContain(` context add here --url ${url} --key ${key}`);
  expect(lines.at(-1)).toContain("admin=127.0.0.1:18083");
  expect(bannerLines({ ...facts, admin }).join("\n")).not.toContain("key");
});

test("an admin port that another program has is told, with the flag for another one", () => {
  const lines = bannerLines({ ...facts, adminTaken: "127.0.0.1:18083" });
  expect(lines).toContain(
    "  admin      none: another program has 127.0.0.1:18083 (see --admin-port)",
  );
  expect(lines.at(-1)).toContain(" admin=off ");
});

test("an address that others reach is said loudly, and the try lines use one that can be dialled", () => {
  const lines = bannerLines({ ...facts, listeners: [listener("0.0.0.0", 1)] });
  expect(lines[1]).toContain("ANONYMOUS, EVERYBODY");
  expect(lines.join("\n")).toContain("sub -h 127.0.0.1 -p 1");
});

test("each listener says how it is reached and who may connect", () => {
  const lines = bannerLines({
    ...facts,
    listeners: [
      listener("0.0.0.0", 8883, { type: "tls", authentication: ["certificate", "users"] }),
      listener("::1", 8884, { type: "wss", authentication: ["users", "anonymous"] }),
      listener("", 0, { type: "unix", path: "/run/flagstone.sock" }),
    ],
  });
  expect(lines.slice(1, 4)).toEqual([
    "  mqtt       tls://0.0.0.0:8883  (certificate, users)",
    "  mqtt       wss://[::1]:8884  (users, and anonymous, this machine only)",
    "  mqtt       /run/flagstone.sock  (anonymous, this machine only)",
  ]);
});

test("where a password is needed the lines to try say so", () => {
  const listeners = [listener("127.0.0.1", 1, { authentication: ["password_file"] })];
  expect(bannerLines({ ...facts, listeners }).join("\n")).toContain("-u USER -P PASSWORD -t");
});

test("loopback is told from addresses that look like it", () => {
  expect(["127.0.0.1", "127.9.9.9", "::1", "localhost"].every(isLoopback)).toBe(true);
  expect(["127.0.0.1.example.org", "0.0.0.0", "::", "10.0.0.1"].some(isLoopback)).toBe(false);
});

test("a group that acks before it syncs is named where durability is promised", () => {
  const weakGroups = weakGroupsOf({ default: { fsync: "always" }, loose: { fsync: "interval" } });
  const text = bannerLines({ ...facts, weakGroups }).join("\n");
  expect(text).toContain("durability WEAK in group loose (fsync: interval)");
  expect(text).not.toContain("synced to disk");
});
