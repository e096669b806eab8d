// Users, keys and rules are read again together: all of it holds then, or nothing of it.

import { generateKeyPairSync } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as jose from "jose";
import { expect, test } from "vitest";
import { SeededRandom, SimClock, silentLogger } from "../../../src/base/index.ts";
import type { Verdict } from "../../../src/broker/index.ts";
import { createSettings } from "../../../src/node/config/config.ts";
import { openSecurity } from "../../../src/node/security/security.ts";
import type { MapShard } from "../../../src/store/index.ts";
import { renewed, server } from "../../support/certificates.ts";
import { loginRequest } from "../../support/login-request.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

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
