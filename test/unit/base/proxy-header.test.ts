import { describe, expect, test } from "vitest";
import { parseProxyHeader, proxyHeaderBytesMax } from "../../../src/base/index.ts";
import { proxyV2, tlv } from "../../support/proxy-bytes.ts";

const source = { host: "203.0.113.7", port: 50_312 };

describe("version 1", () => {
  test.each([
    ["PROXY TCP4 203.0.113.7 10.0.0.1 50312 1883\r\n", source],
    ["PROXY TCP6 2001:db8::7 2001:db8::1 50312 1883\r\n", { host: "2001:db8::7", port: 50_312 }],
    ["PROXY TCP6 2001:DB8:0:0:0:0:0:7 ::1 50312 1883\r\n", { host: "2001:db8::7", port: 50_312 }],
    ["PROXY TCP6 ::ffff:203.0.113.7 ::1 50312 1883\r\n", source],
    ["PROXY TCP6 ::ffff:cb00:7107 ::1 50312 1883\r\n", source],
    ["PROXY UNKNOWN\r\n", undefined],
    ["PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", undefined],
  ])("%j tells the source", (text, expected) => {
    const header = Buffer.from(text);
    const parsed = parseProxyHeader(Buffer.concat([header, Buffer.from("\x10rest")]));
    expect(parsed).toEqual({
      kind: "header",
      length: header.length,
      source: expected,
      commonName: undefined,
    });
  });

  test.each([
    "PROXY TCP4 203.0.113.7 10.0.0.1 50312\r\n",
    "PROXY TCP4 203.0.113.7 10.0.0.1 70000 1883\r\n",
    "PROXY TCP4 203.0.113.7 10.0.0.1 050312 1883\r\n",
    "PROXY TCP4 2001:db8::7 10.0.0.1 50312 1883\r\n",
    "PROXY TCP6 203.0.113.7 10.0.0.1 50312 1883\r\n",
    "PROXY TCP4 999.1.1.1 10.0.0.1 50312 1883\r\n",
    "PROXY TCP4 203.0.113.07 10.0.0.1 50312 1883\r\n",
    "PROXY TCP4 203.0.113.7 10.0.0.256 50312 1883\r\n",
    "PROXY TCP4 203.0.113.7 balancer 50312 1883\r\n",
    "PROXY TCP4 203.0.113.7 10.0.0.1 50312 65536\r\n",
    "PROXY TCP6 ::: ::1 50312 1883\r\n",
    "PROXY TCP6 1::2::3 ::1 50312 1883\r\n",
    "PROXY TCP6 2001:db8::7%eth0 ::1 50312 1883\r\n",
    "PROXY TCP6 2001:db8::7 10.0.0.1 50312 1883\r\n",
    "PROXY UDP4 203.0.113.7 10.0.0.1 50312 1883\r\n",
    "PROXY  TCP4 203.0.113.7 10.0.0.1 50312 1883\r\n",
    `PROXY ${"x".repeat(101)}`,
    "PROXX",
    "\x10\x0d",
  ])("%j is no header", (text) => {
    expect(parseProxyHeader(Buffer.from(text, "latin1")).kind).toBe("invalid");
  });
});

describe("version 2", () => {
  test("addresses of both families", () => {
    expect(parseProxyHeader(proxyV2({ host: "203.0.113.7", port: 50_312 }))).toMatchObject({
      kind: "header",
      source,
    });
    expect(parseProxyHeader(proxyV2({ host: "2001:db8:0:0:0:0:0:7", port: 9 }))).toMatchObject({
      source: { host: "2001:db8::7", port: 9 },
    });
  });

  test("IPv4 in IPv6 is told as the IPv4 address that it is, not as one of a shared network", () => {
    const mapped = proxyV2({ host: "0:0:0:0:0:ffff:cb00:7107", port: 50_312 });
    expect(parseProxyHeader(mapped)).toMatchObject({ source });
  });

  test("LOCAL and unspecified families tell no source", () => {
    expect(parseProxyHeader(proxyV2(source, { command: 0 }))).toMatchObject({ source: undefined });
    expect(parseProxyHeader(proxyV2(undefined))).toMatchObject({ source: undefined });
  });

  test("the common name counts when the balancer has verified the certificate", () => {
    const ssl = (flags: number, verify: number, name = "alice") =>
      proxyV2(source, {
        fields: Buffer.concat([
          tlv(0x04, Buffer.alloc(3)),
          tlv(0x20, Buffer.from([flags, 0, 0, 0, verify, ...tlv(0x22, Buffer.from(name))])),
        ]),
      });
    expect(parseProxyHeader(ssl(0x07, 0))).toMatchObject({ commonName: "alice" });
    expect(parseProxyHeader(ssl(0x07, 1))).toMatchObject({ commonName: undefined });
    expect(parseProxyHeader(ssl(0x01, 0))).toMatchObject({ commonName: undefined });
    expect(parseProxyHeader(ssl(0x07, 0, ""))).toMatchObject({ commonName: undefined });
  });

  test.each([
    ["another version", proxyV2(source, { version: 3 })],
    ["an unknown command", proxyV2(source, { command: 2 })],
    ["a datagram family", proxyV2(source, { family: 0x12 })],
    ["addresses that are cut", proxyV2(undefined, { family: 0x11, fields: Buffer.alloc(8) })],
    ["a huge length", proxyV2(source, { fields: Buffer.alloc(proxyHeaderBytesMax) })],
  ])("%s is no header", (_name, bytes) => {
    expect(parseProxyHeader(bytes).kind).toBe("invalid");
  });

  test("fields that lie about their length tell nothing", () => {
    const fields = Buffer.from([0x20, 0xff, 0xff, 0x07, 0, 0, 0, 0]);
    expect(parseProxyHeader(proxyV2(source, { fields }))).toMatchObject({ commonName: undefined });
  });
});

test("a header that is cut anywhere asks for more", () => {
  for (const header of [
    proxyV2(source),
    Buffer.from("PROXY TCP4 203.0.113.7 10.0.0.1 50312 1883\r\n"),
  ]) {
    for (let length = 0; length < header.length; length++) {
      expect(parseProxyHeader(header.subarray(0, length)).kind).toBe("more");
    }
  }
});
