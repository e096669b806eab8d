import { X509Certificate } from "node:crypto";
import { writeFileSync } from "node:fs";
import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk, systemClock } from "../../../src/base/index.ts";
import { certificateCheck } from "../../../src/node/admin/certificates.ts";
import { examine } from "../../../src/node/admin/doctor.ts";
import { portCheck } from "../../../src/node/admin/doctor-ports.ts";
import { createSettings } from "../../../src/node/config/config.ts";
import { renewed, server } from "../../support/certificates.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

const dayMs = 24 * 3600 * 1000;
const endMs = Date.parse(new X509Certificate(server.cert).validTo);

async function listening(): Promise<net.Server & { port: number }> {
  const opened = net.createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => {
    opened.listen(0, "127.0.0.1", resolve);
  });
  return Object.assign(opened, { port: (opened.address() as AddressInfo).port });
}

describe("doctor looks at the ports", () => {
  const bound = (port: number) => ({
    ...{ name: "tcp", type: "tcp" as const, host: "127.0.0.1", port, authentication: [] },
  });

  test("of a running node: a listener that does not answer is a failure", async () => {
    const opened = await listening();
    const settings = createSettings();
    const look = () => portCheck({ settings, clock: systemClock, listeners: [bound(opened.port)] });
    expect(await look()).toMatchObject({ state: "ok", message: "all listeners answer" });
    await new Promise((resolve) => opened.close(resolve));
    expect(await look()).toMatchObject({
      ...{ state: "failed", message: "tcp does not answer: ECONNREFUSED" },
    });
  });

  test("of one that does not run: a port that another program has is a failure", async () => {
    const opened = await listening();
    const settings = createSettings({ listeners: { inner: { port: opened.port } } });
    const look = () => portCheck({ settings, clock: systemClock, listeners: undefined });
    const message = `port ${opened.port} of inner cannot be had: another program has it`;
    expect(await look()).toMatchObject({ state: "failed", message });
    await new Promise((resolve) => opened.close(resolve));
    expect(await look()).toMatchObject({ state: "ok", message: "all are free" });
  });
});

describe("doctor looks at certificates", () => {
  const examined = (cert: string, key: string, nowMs: number, ca?: string) =>
    withTemporaryFolder(async (folder) => {
      const own = { cert: join(folder, "c.pem"), key: join(folder, "k.pem") };
      const tls = { ...own, ...(ca !== undefined && { clientCa: join(folder, "ca.pem") }) };
      writeFileSync(own.cert, cert);
      writeFileSync(own.key, key);
      if (ca !== undefined) writeFileSync(join(folder, "ca.pem"), ca);
      const settings = createSettings({ listeners: { secure: { type: "tls", port: 0, tls } } });
      return certificateCheck(settings, nowMs);
    });

  test("a good one is well, one that ends soon a warning, one that ended a failure", async () => {
    const { cert, key } = server;
    for (const [nowMs, state] of [
      [endMs - 100 * dayMs, "ok"],
      [endMs - 3 * dayMs, "warning"],
      [endMs + 1, "failed"],
    ] as const) {
      expect(await examined(cert, key, nowMs)).toMatchObject({ state });
    }
  });

  test("a key of another one, and what is no certificate, are failures that name listener and file", async () => {
    const nowMs = endMs - 100 * dayMs;
    const { cert, key } = server;
    const broken = cert.replace(/\n[\w+/]{64}\n/, "\nAAAA\n");
    for (const [files, said] of [
      [[cert, renewed.key], /k\.pem": it is not the key of \S+c\.pem$/],
      [["nothing", key], /c\.pem": it holds no certificate in PEM$/],
      [[broken, key], /c\.pem": it holds a broken certificate: /],
      [[cert, "nothing"], /k\.pem": it holds no private key in PEM: /],
      [[cert, cert], /k\.pem": it holds no private key in PEM: /],
    ] as const) {
      const found = await examined(files[0], files[1], nowMs);
      expect(found).toMatchObject({ state: "failed" });
      expect(found.message).toMatch(/^listener secure: cannot use the file "/);
      expect(found.message).toMatch(said);
    }
    const found = await examined(cert, key, nowMs, "nothing");
    expect(found.message).toMatch(/ca\.pem": it holds no certificate in PEM$/);
  });

  test("none is needed where no listener has TLS", async () => {
    const settings = createSettings();
    const found = await certificateCheck(settings, 0);
    expect(found).toMatchObject({ state: "ok", message: "no listener has one" });
  });
});

test("doctor times the syncs of the data disk, and warns of slow and of impossible ones", async () => {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  await clock.complete(disk.makeDir("data"));
  const look = async () => {
    const settings = createSettings({ data: { dir: "data" } });
    const asked = { dir: "data", disk, clock, settings, checks: async () => [], listeners: [] };
    const { checks, facts } = await clock.complete(examine(asked));
    return { sync: checks.find(({ name }) => name === "sync"), facts };
  };
  const quick = await look();
  expect(quick.sync).toMatchObject({ state: "ok" });
  // The file of the probe is gone: nothing is left in the data directory.
  expect(await clock.complete(disk.list("data"))).toEqual([]);
  disk.inject({ on: "fdatasync", path: "doctor.tmp", delayMs: 40, times: 5 });
  const slow = await look();
  expect(slow.sync).toMatchObject({
    state: "warning",
    help: expect.stringContaining("faster disk"),
  });
  expect(slow.facts.syncMsP99).toBeGreaterThanOrEqual(40);
  disk.inject({ on: "write", path: "doctor.tmp", fails: "ENOSPC" });
  expect((await look()).sync).toMatchObject({
    ...{ state: "warning", message: "could not write to the data directory (DISK_FULL)" },
  });
  disk.inject({ on: "fdatasync", path: "doctor.tmp", fails: "EIO" });
  expect((await look()).sync).toMatchObject({
    ...{ state: "failed", message: "could not write to the data directory (DISK_IO_FAILED)" },
    help: expect.stringContaining("flagstone explain DISK_IO_FAILED"),
  });
});
