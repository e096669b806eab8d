import { expect, test } from "vitest";
import { isCodedError } from "../../../../src/base/index.ts";
import { createSettings } from "../../../../src/node/config/config.ts";
import { isLoopback, networkOf } from "../../../../src/node/config/security-rules.ts";

function faultOf(input: object): string {
  try {
    createSettings(input);
  } catch (error) {
    if (isCodedError(error, "CONFIG_INVALID")) return error.message;
    throw error;
  }
  return "no fault";
}

const pair = { cert: "c.pem", key: "k.pem" };

test.each(["0.0.0.0", "::", "10.0.0.1", "broker.example.org", "127.0.0.1.example.org"])(
  "%s is not served without a word on who may enter",
  (host) => {
    expect(faultOf({ listeners: { tcp: { host } } })).toContain(
      "can be reached by other machines, and nothing says who may enter: set authentication.chain",
    );
    const chain = ["anonymous"];
    expect(faultOf({ listeners: { tcp: { host } }, authentication: { chain } })).toBe("no fault");
    expect(faultOf({ listeners: { tcp: { host, authentication: chain } } })).toBe("no fault");
  },
);

test.each([
  [{ listeners: { l: { type: "tls" } } }, "listeners.l.tls.cert: is missing"],
  [{ listeners: { l: { type: "wss", tls: { cert: "c" } } } }, "listeners.l.tls.key: is missing"],
  [
    { listeners: { l: { type: "tls", tls: { ...pair, clientCertificate: "required" } } } },
    "listeners.l.tls.clientCa: is missing",
  ],
  [{ listeners: { l: { type: "unix" } } }, "listeners.l.path: is missing"],
  [{ listeners: { l: { type: "ws", path: "mqtt" } } }, "does not begin with /"],
  [{ listeners: { l: { proxyFrom: ["10.0.0.0/33"] } } }, "is no address and no network"],
  [{ listeners: { l: { proxyFrom: ["balancer"] } } }, "is no address and no network"],
  [
    { listeners: { a: { type: "unix", path: "/s" }, b: { type: "unix", path: "/s" } } },
    "listeners.b.path: /s is taken by listeners.a.path already",
  ],
  [{ authentication: { chain: ["passwords"] } }, '"passwords" is no method; there are'],
  [{ authentication: { chain: ["users", "users"] } }, "users stands there twice"],
  [{ authentication: { chain: ["anonymous", "users"] } }, "anonymous comes last"],
  [{ authentication: { chain: ["password_file"] } }, "needs authentication.passwordFile"],
  [{ authentication: { chain: ["http"] } }, "needs authentication.http.url"],
  [{ authentication: { chain: ["jwt"] } }, "needs authentication.jwt.jwksUrl, jwksFile or secret"],
  [
    {
      authentication: {
        chain: ["jwt"],
        jwt: { jwksFile: "f", jwksUrl: "https://keys.example/jwks" },
      },
    },
    "only one of authentication.jwt",
  ],
  [
    { authentication: { http: { url: "https://flagstone:word@auth.example/" } } },
    "expected a URL that begins with https:// or http://, without user and password",
  ],
  [{ authentication: { jwt: { secret: "short" } } }, "got a secret, expected 32 bytes or more"],
  [{ authentication: { http: { url: "ftp://x" } } }, "expected a URL that begins with https://"],
  [{ authorization: { sources: ["acl"] } }, '"acl" is no source; there are'],
  [{ authorization: { sources: ["rule_file"] } }, "authorization.ruleFile: is missing"],
])("%j is refused", (input, fault) => {
  expect(faultOf(input)).toContain(fault);
});

test("addresses and networks of both families", () => {
  expect(networkOf("10.1.0.0/16")).toEqual({ address: "10.1.0.0", prefix: 16 });
  expect(networkOf("::1")).toEqual({ address: "::1", prefix: 128 });
  expect(networkOf("2001:db8::/32")).toEqual({ address: "2001:db8::", prefix: 32 });
});

test.each([
  ...["10.1.0.0/", "10.1.0.0/-1", "10.1.0.0/33", "10.1.0.0/16/8", "10.1.0.0/016", "10.1.0.0/0x8"],
  ...["10.1.0.256", "10.1.0", "010.1.0.0/16", "::1/129", "fe80::1%eth0", "balancer", ""],
])("%j is no address and no network", (text) => {
  expect(networkOf(text)).toBeUndefined();
});

test("what only looks like loopback is a network like any other", () => {
  expect(["127.0.0.1", "127.9.9.9", "::1", "localhost"].map(isLoopback)).toEqual(
    Array(4).fill(true),
  );
  const others = [
    "127.1",
    "127.0.0.256",
    "127.999.1.1",
    "127.0.0.1.example.org",
    "128.0.0.1",
    "::",
  ];
  expect(others.filter(isLoopback)).toEqual([]);
});
