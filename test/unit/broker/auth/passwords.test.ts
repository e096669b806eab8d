import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock } from "../../../../src/base/index.ts";
import { parsePasswordFile } from "../../../../src/broker/auth/password-file.ts";
import {
  hashForScram,
  hashPassword,
  parsePasswordHash,
  verifyPassword,
} from "../../../../src/broker/auth/password-hash.ts";
import { passwordMethod, SwappedUsers } from "../../../../src/broker/auth/password-method.ts";
import { PasswordVerifier, verifierSettingsDefault } from "../../../../src/broker/auth/verifier.ts";
import { AuthChain, everybody, withoutCredentials } from "../../../../src/broker/index.ts";
import { loginRequest } from "../../../support/login-request.ts";

const random = new SeededRandom(1);
const secret = Buffer.from("correct horse");

/** Written by mosquitto_passwd for the password "hello". */
const mosquitto7 =
  "$7$101$6apMTtJtScWerwhE$oVoZLWeta+6F2j84Y66HNhBz6qDPpb1QGMjbgKdF/tnkY1eZBf1swIAV3QVgsUOCmGne+NLRp9ps1geems0qBQ==";
const mosquitto6 =
  "$6$HnNly9vmXTxvfPBz$DQJACgCIv1klZ/GX4hLZLLCsXEQeg71I5A/xP+4hTUv2dwHgGoFDqCIWWKe/b4RmYEdxGxaHW605zUuWlwNVww==";

describe("hashes", () => {
  test.each([
    ["scrypt", hashPassword],
    ["SCRAM", hashForScram],
  ])(
    "%s: the password verifies, others do not, and no two texts are the same",
    async (_n, make) => {
      const text = await make(secret, random);
      const again = await make(secret, random);
      expect(text).not.toBe(again);
      const stored = parsePasswordHash(text)!;
      expect(await verifyPassword(stored, secret)).toBe(true);
      for (const other of ["correct hors", "correct horse ", "", "Correct horse"]) {
        expect(await verifyPassword(stored, Buffer.from(other))).toBe(false);
      }
    },
  );

  test.each([
    ["PBKDF2", mosquitto7],
    ["salted SHA-512", mosquitto6],
  ])("%s of Mosquitto verifies", async (_name, text) => {
    const stored = parsePasswordHash(text)!;
    expect(await verifyPassword(stored, Buffer.from("hello"))).toBe(true);
    expect(await verifyPassword(stored, Buffer.from("hallo"))).toBe(false);
  });

  test.each([
    "",
    "hello",
    "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA",
    "$scrypt$ln=40,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$scrypt$ln=20,r=200,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$scrypt$ln=15,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAA",
    "$7$99999999$c2FsdHNhbHQ=$AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$7$0$c2FsdHNhbHQ=$AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$6$c2FsdA==$c2hvcnQ=",
    "$scram-sha-256$i=4096$c2FsdA$AAAA$AAAA",
    `${mosquitto7} `,
  ])("%j has none of the known forms, or costs too much", (text) => {
    expect(parsePasswordHash(text)).toBeUndefined();
  });
});

describe("password file", () => {
  test("names and hashes, comments, empty lines, line ends of either kind", () => {
    const table = parsePasswordFile(`# users\r\n\nalice:${mosquitto7}\r\nbob smith:${mosquitto7}`);
    expect([...table.keys()]).toEqual(["alice", "bob smith"]);
    expect(table.get("alice")).toBe(mosquitto7);
  });

  test.each([
    [`alice:${mosquitto7}\nbob\n`, "line 2"],
    ["alice:hunter2\n", "line 1"],
    [`:${mosquitto7}\n`, "line 1"],
    [`alice:${mosquitto7}\nalice:${mosquitto7}\n`, "line 2"],
    [`al\u0000ice:${mosquitto7}\n`, "line 1"],
    [`alice:${mosquitto7}:0:0\n`, "line 1"],
  ])("one broken line refuses the file, and no message shows what is in it: %#", (text, where) => {
    const parse = (): unknown => parsePasswordFile(text);
    expect(parse).toThrow(where);
    expect(parse).not.toThrow(/hunter2|\$7\$10/);
  });
});

describe("logins with a password", () => {
  async function world(settings = {}) {
    const clock = new SimClock();
    const users = new SwappedUsers(
      new Map([
        ["alice", await hashPassword(secret, random)],
        ["scram", await hashForScram(secret, random)],
      ]),
    );
    const verifier = new PasswordVerifier(
      { ...verifierSettingsDefault, ...settings },
      clock,
      random,
    );
    const method = passwordMethod("password_file", users, verifier);
    const login = (userName?: string, password?: string) =>
      method.authenticate(loginRequest({ userName, password }));
    return { clock, users, verifier, method, login };
  }

  test("right, wrong, unknown, without a password", async () => {
    const { login } = await world();
    expect(await login("alice", "correct horse")).toMatchObject({
      kind: "allow",
      identity: { user: "alice", method: "password_file" },
    });
    expect(await login("scram", "correct horse")).toMatchObject({ kind: "allow" });
    expect(await login("alice", "wrong")).toMatchObject({ kind: "deny" });
    expect(await login("alice", "")).toMatchObject({ kind: "deny" });
    expect(await login("mallory", "correct horse")).toEqual({ kind: "ignore" });
    expect(await login("alice")).toEqual({ kind: "ignore" });
    expect(await login()).toEqual({ kind: "ignore" });
    expect(await login("__proto__", "x")).toEqual({ kind: "ignore" });
  });

  test("who was right a moment ago is not hashed again; a changed hash counts at once", async () => {
    const { clock, users, login } = await world({ hashingMax: 0, waitingMax: 0 });
    expect(await login("alice", "correct horse")).toMatchObject({ kind: "unavailable" });
    const open = await world();
    await open.login("alice", "correct horse");
    const before = performance.now();
    for (let n = 0; n < 200; n++) await open.login("alice", "correct horse");
    expect(performance.now() - before).toBeLessThan(1000);
    open.users.swap(new Map([["alice", await hashPassword(Buffer.from("new"), random)]]));
    expect(await open.login("alice", "correct horse")).toMatchObject({ kind: "deny" });
    expect([clock, users]).toBeDefined();
  });

  test("hashing is bounded, and so is what waits for it", async () => {
    const { login } = await world({ hashingMax: 1, waitingMax: 2 });
    const verdicts = await Promise.all(
      Array.from({ length: 5 }, (_, n) => login("alice", `guess ${n}`)),
    );
    expect(verdicts.map(({ kind }) => kind)).toEqual([
      ...["deny", "deny", "deny"],
      ...["unavailable", "unavailable"],
    ]);
  });

  test("an identity is current while its line is what it was", async () => {
    const { users, method, login } = await world();
    const verdict = await login("alice", "correct horse");
    const identity = verdict.kind === "allow" ? verdict.identity : undefined;
    expect(method.isCurrent?.(identity!)).toBe(true);
    users.swap(new Map([["alice", users.find("alice")!]]));
    expect(method.isCurrent?.(identity!)).toBe(true);
    users.swap(new Map([["alice", await hashPassword(secret, random)]]));
    expect(method.isCurrent?.(identity!)).toBe(false);
    users.swap(new Map());
    expect(method.isCurrent?.(identity!)).toBe(false);
  });
});

describe("the chain", () => {
  const allow = (user: string) => ({
    name: user,
    authenticate: async () => ({ kind: "allow" as const, identity: { user, method: user } }),
  });
  const ignore = { name: "none", authenticate: async () => ({ kind: "ignore" as const }) };
  const deny = { name: "no", authenticate: () => ({ kind: "deny" as const, why: "no" }) };

  test("the first that does not ignore decides", async () => {
    const ask = (...methods: ConstructorParameters<typeof AuthChain>[0]) =>
      new AuthChain(methods).authenticate(loginRequest({}));
    expect(await ask(ignore, allow("a"), allow("b"))).toMatchObject({ identity: { user: "a" } });
    expect(await ask(ignore, deny, allow("b"))).toMatchObject({ kind: "deny" });
    expect(await ask(ignore, ignore)).toMatchObject({ kind: "deny" });
    expect(await ask()).toMatchObject({ kind: "deny" });
  });

  test("anonymous behind other methods lets in only who brings no credentials", async () => {
    const chain = new AuthChain([ignore, withoutCredentials]);
    const kind = async (request: Parameters<typeof loginRequest>[0]) =>
      (await chain.authenticate(loginRequest(request))).kind;
    expect(await kind({})).toBe("allow");
    expect(await kind({ userName: "x" })).toBe("deny");
    expect(await kind({ password: "x" })).toBe("deny");
    expect(new AuthChain([everybody]).authenticate(loginRequest({ userName: "x" }))).toMatchObject({
      identity: { user: undefined },
    });
  });
});
