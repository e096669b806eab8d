import { generateKeyPairSync } from "node:crypto";
import * as jose from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { SimClock } from "../../../../src/base/index.ts";
import { HttpMethod } from "../../../../src/broker/auth/http-method.ts";
import {
  JwtMethod,
  type JwtRules,
  keysOfJwks,
  keysOfSecret,
  RotatingKeys,
} from "../../../../src/broker/auth/jwt.ts";
import { certificateMethod } from "../../../../src/broker/index.ts";
import { loginRequest } from "../../../support/login-request.ts";

const rules: JwtRules = {
  algorithms: ["ES256", "RS256"],
  issuer: "https://issuer.example",
  audience: "mqtt",
  userClaim: "sub",
  leewayS: 10,
};
const ours = generateKeyPairSync("ec", { namedCurve: "P-256" });
const theirs = generateKeyPairSync("ec", { namedCurve: "P-256" });
let jwks = "";
const clock = new SimClock();
const nowS = Math.floor(clock.wallUs() / 1_000_000);

beforeAll(async () => {
  const key = await jose.exportJWK(ours.publicKey);
  jwks = JSON.stringify({ keys: [{ ...key, kid: "a", alg: "ES256" }] });
});

type Claims = Record<string, unknown>;
const good: Claims = {
  ...{ sub: "alice", iss: "https://issuer.example", aud: "mqtt" },
  ...{ exp: nowS + 60, iat: nowS },
};

function sign(claims: Claims, key = ours.privateKey, header = {}): Promise<string> {
  return new jose.SignJWT(claims)
    .setProtectedHeader({ alg: "ES256", kid: "a", ...header })
    .sign(key);
}

async function ask(token: string, userName?: string, change: Partial<JwtRules> = {}) {
  const keys = await keysOfJwks(jwks);
  const method = new JwtMethod({ ...rules, ...change }, clock, () => keys);
  return method.authenticate(loginRequest({ userName, password: token }));
}

describe("tokens", () => {
  test("a good one tells user, rights and end", async () => {
    const rights = { publish: ["devices/%c/#"], subscribe: ["news/#"], deny: ["news/secret"] };
    expect(await ask(await sign({ ...good, rights }))).toEqual({
      kind: "allow",
      identity: {
        user: "alice",
        method: "jwt",
        expiresUs: (nowS + 70) * 1_000_000,
        grants: [
          { effect: "allow", access: "write", filter: "devices/%c/#" },
          { effect: "allow", access: "read", filter: "news/#" },
          { effect: "deny", access: "both", filter: "news/secret" },
        ],
      },
    });
    expect(await ask(await sign(good), "alice")).toMatchObject({ kind: "allow" });
  });

  test.each<[string, Claims]>([
    ["expired", { exp: nowS - 11 }],
    ["without an end", { exp: undefined }],
    ["not valid yet", { nbf: nowS + 30 }],
    ["of another issuer", { iss: "https://evil.example" }],
    ["for another audience", { aud: "http" }],
    ["without a user", { sub: undefined }],
    ["with a user that is no text", { sub: 7 as unknown as string }],
    ["with rights that are no rights", { rights: { publish: "#" } }],
    ["with unknown rights", { rights: { admin: ["#"] } }],
    ["with rights that every object has", { rights: { constructor: ["#"] } }],
    ["with rights of a prototype", { rights: JSON.parse('{"__proto__": ["#"]}') }],
    ["with a filter that is none", { rights: { publish: ["a#"] } }],
  ])("one that is %s is denied", async (_name, claims) => {
    const merged = Object.entries({ ...good, ...claims }).filter(
      ([, value]) => value !== undefined,
    );
    expect(await ask(await sign(Object.fromEntries(merged)))).toMatchObject({ kind: "deny" });
  });

  test("forged, unsigned, of another user, cut: denied; no token at all: not ours", async () => {
    expect(await ask(await sign(good, theirs.privateKey))).toMatchObject({ kind: "deny" });
    expect(await ask(await sign(good), "bob")).toMatchObject({ kind: "deny" });
    const [header, payload] = (await sign(good)).split(".");
    expect(await ask(`${header}.${payload}.AAAA`)).toMatchObject({ kind: "deny" });
    const none = Buffer.from('{"alg":"none"}').toString("base64url");
    expect(await ask(`${none}.${payload}.AAAA`)).toMatchObject({ kind: "deny" });
    expect(await ask(`${none}.${payload}.`)).toEqual({ kind: "ignore" });
    expect(await ask("hunter2")).toEqual({ kind: "ignore" });
  });

  test("a public key is no shared secret", async () => {
    const pem = ours.publicKey.export({ type: "spki", format: "pem" }) as string;
    const token = await new jose.SignJWT(good)
      .setProtectedHeader({ alg: "HS256", kid: "a" })
      .sign(Buffer.from(pem));
    expect(await ask(token)).toMatchObject({ kind: "deny" });
  });

  test("a shared secret verifies, and is long enough", async () => {
    const secret = "0123456789abcdef0123456789abcdef";
    const token = await new jose.SignJWT(good)
      .setProtectedHeader({ alg: "HS256" })
      .sign(Buffer.from(secret));
    const method = new JwtMethod({ ...rules, algorithms: ["HS256"] }, clock, () =>
      keysOfSecret(secret),
    );
    const verdict = await method.authenticate(loginRequest({ password: token }));
    expect(verdict).toMatchObject({ kind: "allow" });
    expect(() => keysOfSecret("short")).toThrow("32 bytes");
  });

  test("without keys nobody gets in, and it may be tried again", async () => {
    const method = new JwtMethod(rules, clock, () => undefined);
    const verdict = await method.authenticate(loginRequest({ password: await sign(good) }));
    expect(verdict).toMatchObject({ kind: "unavailable" });
  });

  test("a set that cannot be read leaves the old one", async () => {
    const keys = new RotatingKeys();
    expect(await keys.set(jwks)).toBe(true);
    const before = keys.current;
    expect(await keys.set(jwks)).toBe(false);
    for (const text of ["", "{", "[]", '{"keys": 1}']) {
      await expect(keys.set(text)).rejects.toThrow();
    }
    expect(keys.current).toBe(before);
  });
});

describe("the http method", () => {
  const answering = (text: string, status = 200) =>
    new HttpMethod(async () => ({ status, text }), 10).authenticate(
      loginRequest({ userName: "alice", password: "pw" }),
    );

  test("allows with user, rights and end; denies; ignores", async () => {
    expect(await answering('{"result": "allow"}')).toMatchObject({ identity: { user: "alice" } });
    expect(
      await answering('{"result":"allow","user":"a","rights":{"publish":["x"]},"expires":5}'),
    ).toMatchObject({
      identity: { user: "a", expiresUs: 5_000_000, grants: [{ filter: "x" }] },
    });
    expect(await answering('{"result": "deny"}')).toMatchObject({ kind: "deny" });
    expect(await answering('{"result": "ignore"}')).toEqual({ kind: "ignore" });
  });

  test.each([
    ["", 200],
    ["null", 200],
    ["true", 200],
    ["[]", 200],
    ['{"result": "yes"}', 200],
    ['{"result": true}', 200],
    ['{"result": "allow", "user": 7}', 200],
    ['{"result": "allow", "user": ""}', 200],
    ['{"result": "allow", "expires": "soon"}', 200],
    ['{"result": "allow", "rights": "#"}', 200],
    ['{"result": "allow"}', 500],
    ['{"result": "allow"}', 204],
  ])("%j with status %i lets nobody in", async (text, status) => {
    expect(await answering(text, status)).toMatchObject({ kind: "unavailable" });
  });

  test("no answer, and too many questions at once, let nobody in", async () => {
    const failing = new HttpMethod(() => Promise.reject(new Error("secret")), 1);
    expect(await failing.authenticate(loginRequest({}))).toEqual({
      kind: "unavailable",
      why: "the http method gave no answer",
    });
    const waiting = new HttpMethod(() => new Promise(() => undefined), 1);
    waiting.authenticate(loginRequest({})).catch(() => undefined);
    expect(await waiting.authenticate(loginRequest({}))).toMatchObject({ kind: "unavailable" });
  });

  test("it is told everything that decides, and a password only in its own field", async () => {
    let body = "";
    const method = new HttpMethod(async (text) => {
      body = text;
      return { status: 200, text: '{"result":"ignore"}' };
    }, 1);
    await method.authenticate(loginRequest({ userName: "alice", password: "pw" }));
    expect(JSON.parse(body)).toEqual({
      ...{ clientId: "c", userName: "alice", password: "pw" },
      ...{ remote: "127.0.0.1:50000", listener: "tcp" },
    });
  });
});

describe("certificates", () => {
  const certificate = { commonName: "alice", alternativeNames: ["a.example"], fingerprint: "AA" };
  const ask = (field: "common_name" | "alternative_name", fields = {}) =>
    certificateMethod(field).authenticate(loginRequest({ certificate, ...fields }));

  test("the user is who the certificate says", () => {
    expect(ask("common_name")).toMatchObject({ kind: "allow", identity: { user: "alice" } });
    expect(ask("alternative_name")).toMatchObject({ identity: { user: "a.example" } });
    expect(ask("common_name", { userName: "alice" })).toMatchObject({ kind: "allow" });
    expect(ask("common_name", { userName: "bob" })).toMatchObject({ kind: "deny" });
    expect(certificateMethod("common_name").authenticate(loginRequest({}))).toEqual({
      kind: "ignore",
    });
    const nameless = { ...certificate, commonName: undefined };
    expect(ask("common_name", { certificate: nameless })).toMatchObject({ kind: "deny" });
  });
});
