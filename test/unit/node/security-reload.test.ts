// Users, keys and rules are read again together: all of it holds then, or nothing of it.

import { generateKeyPairSync } from "node:crypto";
import { promises } from "node:fs";
import { rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as jose from "jose";
import { expect, test, vi } from "vitest";
import { SeededRandom, SimClock, silentLogger } from "../../../src/base/index.ts";
import { passwordFileSlices, ruleFileSlices, type Verdict } from "../../../src/broker/index.ts";
import { createSettings } from "../../../src/node/config/config.ts";
import { inSlices } from "../../../src/node/security/files.ts";
import { openSecurity } from "../../../src/node/security/security.ts";
import type { MapShard } from "../../../src/store/index.ts";
import { renewed, server } from "../../support/certificates.ts";
import { loginRequest } from "../../support/login-request.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

/** The next time it is asked for the file is not read. */
async function unreadable(file: string, code: string): Promise<void> {
  const { readFile } = promises;
  const reading = vi.spyOn(promises, "readFile").mockImplementation((path, options) => {
    if (path !== file) return readFile(path, options);
    reading.mockRestore();
    return Promise.reject(Object.assign(new Error(code), { code }));
  });
}

/** Nobody is stored. */
const meta = { list: async () => [], get: async () => undefined } as unknown as MapShard;

const pair = () => generateKeyPairSync("ec", { namedCurve: "P-256" });
const [first, second] = [pair(), pair()];
const keySetOf = async ({ publicKey }: typeof first): Promise<string> =>
  JSON.stringify({ keys: [{ ...(await jose.exportJWK(publicKey)), alg: "ES256" }] });

test("a broken file or certificate keeps the keys, users and rules that held, also those read before it", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = (name: string): string => join(folder, name);
    const write = (name: string, text: string): Promise<void> =>
      writeFile(path(name), text, { mode: 0o600 });
    const users = `alice:$6$${"A".repeat(16)}$${"A".repeat(86)}==\n`;
    const rules = "everyone\ntopic read a\n";
    await write("users", users);
    await write("rules", rules);
    await write("keys", await keySetOf(first));
    const clock = new SimClock();
    const jwt = { jwksFile: path("keys"), algorithms: ["ES256"] };
    const settings = createSettings({
      authentication: { chain: ["jwt", "password_file"], passwordFile: path("users"), jwt },
      authorization: { sources: ["rule_file"], ruleFile: path("rules") },
    });
    const random = new SeededRandom(1);
    const security = await openSecurity(settings, { clock, random, logger: silentLogger, meta });
    await write("cert", server.cert);
    await write("key", server.key);
    const tls = { ...settings.listeners.tcp!.tls, cert: path("cert"), key: path("key") };
    const used: string[] = [];
    await security.certificates.watch("tls", tls, { ...server, ca: undefined }, ({ cert }) => {
      used.push(cert);
    });
    let rechecks = 0;
    security.onChange(() => rechecks++);
    const { auth } = security.termsOf("tcp");
    const enters = async ({ privateKey }: typeof first): Promise<string> => {
      const password = await new jose.SignJWT({ sub: "alice" })
        .setProtectedHeader({ alg: "ES256" })
        .setExpirationTime(Math.floor(clock.wallUs() / 1e6) + 60)
        .sign(privateKey);
      const verdict: Verdict = await auth.authenticate(loginRequest({ password }));
      return verdict.kind;
    };
    const mayRead = (topic: string): boolean =>
      security.access.authorize("receive", { clientId: "c", user: "alice" }, topic);
    const state = async () => [
      await enters(first),
      await enters(second),
      mayRead("a"),
      mayRead("b"),
    ];
    const before = await state();
    expect(before).toEqual(["allow", "deny", true, false]);
    await write("keys", await keySetOf(second));
    await write("rules", "everyone\ntopic read b\n");
    for (const spoil of [
      () => write("users", "alice:word\n"),
      () => write("users", users.slice(0, -1)),
      () => write("users", users).then(() => write("rules", "everyone\ntopic reed #\n")),
      // No descriptor is left, or no right to read it.
      () =>
        write("rules", "everyone\ntopic read b\n").then(() => unreadable(path("rules"), "EMFILE")),
      () => unreadable(path("users"), "EACCES"),
    ]) {
      await spoil();
      await expect(security.reload()).rejects.toThrow();
      expect(await state()).toEqual(before);
    }
    await write("rules", "everyone\ntopic read b\n");
    await write("key", renewed.key);
    await expect(security.reload()).rejects.toMatchObject({ code: "NODE_CERTIFICATE_REFUSED" });
    expect(await state()).toEqual(before);
    expect(rechecks).toBe(0);
    await write("cert", renewed.cert);
    await security.reload();
    expect(used).toEqual([renewed.cert]);
    expect(await state()).toEqual(["deny", "allow", false, true]);
    expect(rechecks).toBe(1);
    security.close();
  });
});

test("until a large file is read whole the old rules hold, and an older reading replaces no newer one", async () => {
  await withTemporaryFolder(async (folder) => {
    const ruleFile = join(folder, "rules");
    const many = `topic read b/0\n${`# ${"x".repeat(98)}\n`.repeat(100_000)}`;
    await writeFile(ruleFile, "everyone\ntopic read a\n");
    const settings = createSettings({ authorization: { sources: ["rule_file"], ruleFile } });
    const components = { clock: new SimClock(), random: new SeededRandom(1), logger: silentLogger };
    const security = await openSecurity(settings, { ...components, meta });
    const rights = (): boolean[] =>
      ["a", "b/0", "c"].map((topic) =>
        security.access.authorize("receive", { clientId: "c", user: undefined }, topic),
      );
    // The fault stands in the last line: all before it has been read then.
    await writeFile(ruleFile, `everyone\n${many}topic reed #\n`);
    let isOver = false;
    const failing = security.reload().finally(() => {
      isOver = true;
    });
    failing.catch(() => undefined);
    while (!isOver) {
      expect(rights()).toEqual([true, false, false]);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect(failing).rejects.toThrow("line 100003");
    expect(rights()).toEqual([true, false, false]);
    await writeFile(ruleFile, `everyone\n${many}`);
    const first = security.reload();
    // By now it has opened the large file; what comes next is small.
    for (let n = 0; n < 20; n++) await stat(ruleFile);
    await writeFile(join(folder, "newer"), "everyone\ntopic read c\n");
    await rename(join(folder, "newer"), ruleFile);
    await Promise.all([first, security.reload()]);
    expect(rights()).toEqual([false, false, true]);
    security.close();
  });
});

test("between the slices of a file everybody has a turn, and a slice is small", async () => {
  const hash = `$6$${"A".repeat(16)}$${"A".repeat(86)}==`;
  const users = Array.from({ length: 10_000 }, (_, n) => `user ${n}:${hash}\n`).join("");
  const rules = Array.from({ length: 60_000 }, (_, n) => `topic read b/${n}\n`).join("");
  for (const [text, slices] of [
    [users, passwordFileSlices(users)],
    [rules, ruleFileSlices(`everyone\n${rules}`)],
  ] as const) {
    let count = 0;
    let turns = 0;
    const work = (function* () {
      for (const _ of slices) {
        count++;
        yield;
        // The turn that was asked for before this slice was.
        expect(turns).toBe(count);
      }
    })();
    const counted = (function* () {
      for (const _ of work) {
        setImmediate(() => turns++);
        yield;
      }
    })();
    await inSlices(counted);
    expect(count).toBe(Math.floor(text.length / (128 * 1024)));
  }
});

test("keys and certificates, which are parsed in one go, may have 1 MiB", async () => {
  await withTemporaryFolder(async (folder) => {
    const jwksFile = join(folder, "keys");
    const settings = createSettings({
      authentication: { chain: ["jwt"], jwt: { jwksFile, algorithms: ["ES256"] } },
    });
    const components = { clock: new SimClock(), random: new SeededRandom(1), logger: silentLogger };
    const keys = await keySetOf(first);
    await writeFile(jwksFile, keys.padEnd(1024 * 1024, " "), { mode: 0o600 });
    (await openSecurity(settings, { ...components, meta })).close();
    await writeFile(jwksFile, keys.padEnd(1024 * 1024 + 1, " "), { mode: 0o600 });
    const opening = openSecurity(settings, { ...components, meta });
    await expect(opening).rejects.toThrow("larger than 1 MiB");
  });
});
