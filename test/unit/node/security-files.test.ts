// What is said of the files that security is made of: who else can read or change them, and when a
// certificate ends.

import { X509Certificate } from "node:crypto";
import { chmod, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type LogFields, type Logger, SimClock } from "../../../src/base/index.ts";
import { holdsSecretKeys } from "../../../src/broker/index.ts";
import { certificateAlarms, certificateCheck } from "../../../src/node/admin/certificates.ts";
import { readConfig, secretFilesOf } from "../../../src/node/config/config.ts";
import { createSettings } from "../../../src/node/index.ts";
import { CertificateWatch } from "../../../src/node/security/certificates.ts";
import { warnWhenOpen } from "../../../src/node/security/files.ts";
import { authority, renewed, server } from "../../support/certificates.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

function listening() {
  const said: Array<{ event: string; fields: LogFields }> = [];
  const note = (event: string, fields: LogFields = {}): void => {
    said.push({ event, fields });
  };
  const logger: Logger = { debug: note, info: note, warn: note, error: note };
  return { logger, said, events: () => said.map(({ event }) => event) };
}

test.each([
  [0o600, "secret", []],
  [0o640, "secret", []],
  [0o644, "secret", ["node.secret_file_open"]],
  [0o644, "public", []],
  [0o646, "public", ["node.security_file_writable"]],
  [0o666, "secret", ["node.secret_file_open", "node.security_file_writable"]],
] as const)("a file of mode %o that is %s: %j", async (mode, kind, events) => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "file");
    await writeFile(path, "x");
    await chmod(path, mode);
    const { logger, said, events: heard } = listening();
    await warnWhenOpen(path, kind, logger);
    expect(heard()).toEqual(events);
    for (const { fields } of said) expect(fields).toEqual({ path, mode: `0${mode.toString(8)}` });
  });
});

test("key sets are secret when they hold shared or private keys", () => {
  const setOf = (...keys: object[]): string => JSON.stringify({ keys });
  const open = { kty: "EC", crv: "P-256", x: "x", y: "y" };
  expect(holdsSecretKeys(setOf(open))).toBe(false);
  expect(holdsSecretKeys(setOf(open, { ...open, d: "d" }))).toBe(true);
  expect(holdsSecretKeys(setOf({ kty: "oct", k: "k" }))).toBe(true);
});

test("a configuration file is secret when a secret stands in it", () => {
  const secret = "0123456789abcdef0123456789abcdef";
  const configOf = (text: string) =>
    readConfig({
      file: { name: "flagstone.yaml", bytes: Buffer.from(text) },
      environment: { FLAGSTONE__AUTHENTICATION__HTTP__BEARER: "word" },
    });
  expect(secretFilesOf(configOf("authentication: {hashingMax: 3}\n"))).toEqual([]);
  const held = configOf(`authentication: {jwt: {secret: ${secret}}}\n`);
  expect(secretFilesOf(held)).toEqual(["flagstone.yaml"]);
});

test("a certificate that ends soon is told once a day, by its chain's first end", async () => {
  await withTemporaryFolder(async (folder) => {
    const [cert, key] = [join(folder, "c"), join(folder, "k")];
    // The authority's, made in the same second as the server's, is the rest of the chain.
    await writeFile(cert, `${server.cert}${authority}`);
    await writeFile(key, server.key);
    await chmod(key, 0o600);
    const endMs = Date.parse(new X509Certificate(server.cert).validTo);
    const clock = new SimClock({ wallUs: (endMs - 15 * dayMs) * 1000 });
    const { logger, said, events } = listening();
    const watch = new CertificateWatch(clock, logger);
    const { tls } = createSettings({
      listeners: { tls: { type: "tls", tls: { cert, key } } },
    }).listeners.tls!;
    const material = { cert: `${server.cert}${authority}`, key: server.key, ca: undefined };
    await watch.watch("tls", tls, material, () => undefined);
    expect(watch.list()).toEqual([{ listener: "tls", expiresMs: endMs }]);
    const look = async (days: number): Promise<void> => {
      await clock.advance(days * dayMs);
      await watch.look();
    };
    await look(0.5);
    expect(events()).toEqual([]);
    await look(1);
    await look(0.5);
    expect(events()).toEqual(["node.certificate_expires"]);
    await look(0.6);
    expect(events().length).toBe(2);
    await look(14);
    expect(said.at(-1)).toEqual({
      event: "node.certificate_expired",
      fields: { listener: "tls", at: new Date(endMs).toISOString() },
    });
    watch.close();
  });
});

const dayMs = 24 * 3600 * 1000;

test("an alarm from a fortnight before a certificate's end on, a critical one behind it", () => {
  const expiresMs = Date.parse("2026-12-31T00:00:00Z");
  const at = (days: number) =>
    certificateAlarms([{ listener: "tls", expiresMs }], expiresMs + days * dayMs);
  expect(at(-15)).toEqual([]);
  expect(at(-13)).toMatchObject([
    {
      ...{ name: "certificate_expires", subject: "listener tls", severity: "warning" },
      sinceMs: expiresMs - 14 * dayMs,
      message: "its certificate ends at 2026-12-31T00:00:00.000Z",
    },
  ]);
  expect(at(0)).toMatchObject([{ name: "certificate_expired", severity: "critical" }]);
});

test("the doctor reads the certificates of all listeners and names the first to end", async () => {
  await withTemporaryFolder(async (folder) => {
    const [cert, key] = [join(folder, "c"), join(folder, "k")];
    await writeFile(cert, server.cert);
    await writeFile(key, server.key);
    const tls = { cert, key };
    const listeners = { a: { type: "tls", port: 0, tls }, b: { type: "wss", port: 0, tls } };
    const endMs = Date.parse(new X509Certificate(server.cert).validTo);
    const check = (input: object, nowMs: number) => certificateCheck(createSettings(input), nowMs);
    const end = new Date(endMs).toISOString();
    expect(await check({}, 0)).toMatchObject({ state: "ok", message: "no listener has one" });
    expect(await check({ listeners }, endMs - 20 * dayMs)).toEqual({
      ...{ name: "certificates", state: "ok" },
      message: `that of listener a ends first, at ${end}`,
    });
    expect(await check({ listeners }, endMs - dayMs)).toMatchObject({ state: "warning" });
    expect(await check({ listeners }, endMs)).toMatchObject({
      state: "failed",
      message: `that of listener a ended first, at ${end}`,
      help: expect.stringContaining("Renew it"),
    });
    await writeFile(cert, "nothing of the kind");
    expect(await check({ listeners }, 0)).toMatchObject({
      state: "failed",
      message: expect.stringContaining(`"${cert}": it holds no certificate`),
    });
  });
});

test("a reload demands that what lies there is what is used, however often it was told", async () => {
  await withTemporaryFolder(async (folder) => {
    const [cert, key] = [join(folder, "c"), join(folder, "k")];
    await writeFile(cert, server.cert);
    await writeFile(key, server.key);
    const clock = new SimClock();
    const watch = new CertificateWatch(clock, listening().logger);
    const { tls } = createSettings({
      listeners: { tls: { type: "tls", tls: { cert, key } } },
    }).listeners.tls!;
    const used: string[] = [];
    await watch.watch("tls", tls, { ...server, ca: undefined }, (material) => {
      used.push(material.cert);
    });
    const demand = async (): Promise<string> => {
      await watch.look();
      try {
        watch.demandGood();
        return "good";
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(await demand()).toBe("good");
    await writeFile(cert, renewed.cert);
    const noPair = `"${key}": it is not the key of ${cert}`;
    for (let n = 0; n < 2; n++) expect(await demand()).toContain(noPair);
    const alarm = () => certificateAlarms(watch.list(), 0);
    expect(alarm()).toMatchObject([{ name: "certificate_refused", subject: "listener tls" }]);
    const [{ sinceMs } = { sinceMs: -1 }] = alarm();
    await clock.advance(60_000);
    await rm(cert);
    expect(await demand()).toContain("no such file");
    expect(alarm()).toMatchObject([
      { severity: "critical", sinceMs, message: expect.stringContaining("no such file") },
    ]);
    await writeFile(cert, renewed.cert);
    expect(await demand()).not.toBe("good");
    await writeFile(cert, server.cert);
    expect(await demand()).toBe("good");
    expect(alarm()).toEqual([]);
    await rm(cert);
    await demand();
    await writeFile(cert, server.cert);
    expect(await demand()).toBe("good");
    await writeFile(cert, renewed.cert);
    await writeFile(key, renewed.key);
    expect(await demand()).toBe("good");
    expect(used.at(-1)).toBe(renewed.cert);
    watch.close();
  });
});
