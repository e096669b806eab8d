// The PROXY protocol header, versions 1 and 2, by which a load balancer tells the address of the
// client it speaks for (haproxy.org, proxy-protocol.txt). Pure: bytes in, an address or a fault out.
//
// A header never grows beyond `proxyHeaderBytesMax`; a first byte that cannot begin one is a fault
// at once, so nobody is waited for in vain. Addresses are told in their one plain spelling.

import { isIpv4, plainIpv6 } from "./ip-address.ts";

export const proxyHeaderBytesMax = 4096;

export type ProxyHeader = {
  readonly kind: "header";
  /** Bytes of the header; what follows belongs to the client. */
  readonly length: number;
  /** Undefined: the balancer speaks for itself (LOCAL, UNKNOWN), as its health checks do. */
  readonly source: { readonly host: string; readonly port: number } | undefined;
  /** Common name of a client certificate that the balancer has verified. */
  readonly commonName: string | undefined;
};

export type ProxyParse =
  | ProxyHeader
  | { readonly kind: "more" }
  | { readonly kind: "invalid"; readonly why: string };

const signature1 = Buffer.from("PROXY ");
const signature2 = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");
/** "PROXY UNKNOWN" and two IPv6 addresses with ports. */
const version1BytesMax = 107;
const fixedBytes = 16;
const more: ProxyParse = { kind: "more" };

export function parseProxyHeader(bytes: Buffer): ProxyParse {
  if (bytes.length === 0) return more;
  if (beginsLike(bytes, signature2)) {
    return bytes.length < fixedBytes ? more : parseVersion2(bytes);
  }
  if (beginsLike(bytes, signature1)) return parseVersion1(bytes);
  return invalid("no PROXY header");
}

function beginsLike(bytes: Buffer, signature: Buffer): boolean {
  const length = Math.min(bytes.length, signature.length);
  return bytes.subarray(0, length).equals(signature.subarray(0, length));
}

function invalid(why: string): ProxyParse {
  return { kind: "invalid", why };
}

function parseVersion1(bytes: Buffer): ProxyParse {
  const end = bytes.subarray(0, version1BytesMax).indexOf("\r\n");
  if (end < 0) return bytes.length < version1BytesMax ? more : invalid("version 1: no line end");
  const words = bytes.toString("latin1", 0, end).split(" ");
  const [, family, from = "", to = "", fromPort, toPort] = words;
  const length = end + 2;
  if (family === "UNKNOWN") return headerOf(length, undefined);
  if (words.length !== 6 || (family !== "TCP4" && family !== "TCP6")) {
    return invalid("version 1: not TCP4, TCP6 or UNKNOWN with two addresses and two ports");
  }
  const plain = family === "TCP4" ? plainIpv4 : plainIpv6;
  const [host, port] = [plain(from), portOf(fromPort)];
  if (host === undefined || port === undefined) {
    return invalid("version 1: the source is no address with a port");
  }
  if (plain(to) === undefined || portOf(toPort) === undefined) {
    return invalid("version 1: the destination is no address with a port");
  }
  return headerOf(length, { host, port });
}

function plainIpv4(text: string): string | undefined {
  return isIpv4(text) ? text : undefined;
}

function headerOf(length: number, source: ProxyHeader["source"], commonName?: string): ProxyHeader {
  return { kind: "header", length, source, commonName };
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined || !/^(0|[1-9]\d{0,4})$/.test(text)) return undefined;
  const port = Number(text);
  return port <= 0xffff ? port : undefined;
}

function parseVersion2(bytes: Buffer): ProxyParse {
  const versionAndCommand = bytes.readUInt8(12);
  const length = fixedBytes + bytes.readUInt16BE(14);
  if (versionAndCommand >>> 4 !== 2) return invalid("version 2: another version number");
  const command = versionAndCommand & 0x0f;
  if (command > 1) return invalid("version 2: unknown command");
  if (length > proxyHeaderBytesMax) return invalid("version 2: the header is too long");
  if (bytes.length < length) return more;
  // LOCAL: whatever addresses stand there are to be ignored.
  if (command === 0) return headerOf(length, undefined);
  const body = bytes.subarray(fixedBytes, length);
  const family = bytes.readUInt8(13);
  switch (family) {
    case 0x11:
      if (body.length < 12) return invalid("version 2: the IPv4 addresses are cut");
      return headerOf(
        length,
        { host: [...body.subarray(0, 4)].join("."), port: body.readUInt16BE(8) },
        commonNameIn(body.subarray(12)),
      );
    case 0x21:
      if (body.length < 36) return invalid("version 2: the IPv6 addresses are cut");
      return headerOf(
        length,
        { host: ipv6Text(body.subarray(0, 16)), port: body.readUInt16BE(32) },
        commonNameIn(body.subarray(36)),
      );
    case 0x00:
      return headerOf(length, undefined);
    default:
      return invalid("version 2: neither TCP over IPv4 nor over IPv6");
  }
}

function ipv6Text(address: Buffer): string {
  const words = Array.from({ length: 8 }, (_, at) => address.readUInt16BE(at * 2).toString(16));
  return plainIpv6(words.join(":")) ?? "";
}

const typeSsl = 0x20;
const typeCommonName = 0x22;
/** A certificate was shown on this connection or in its TLS session. */
const certificateFlags = 0x02 | 0x04;

function commonNameIn(fields: Buffer): string | undefined {
  const ssl = fieldIn(fields, typeSsl);
  if (ssl === undefined || ssl.length < 5) return undefined;
  const wasVerified = ssl.readUInt32BE(1) === 0 && (ssl.readUInt8(0) & certificateFlags) !== 0;
  if (!wasVerified) return undefined;
  const name = fieldIn(ssl.subarray(5), typeCommonName)?.toString("utf8");
  return name === "" ? undefined : name; // nobody's: it must not log anybody in
}

/** A value in a list of {type u8, length u16, value}; a list that is cut has no more of them. */
function fieldIn(fields: Buffer, type: number): Buffer | undefined {
  let at = 0;
  while (at + 3 <= fields.length) {
    const end = at + 3 + fields.readUInt16BE(at + 1);
    if (end > fields.length) return undefined;
    if (fields.readUInt8(at) === type) return fields.subarray(at + 3, end);
    at = end;
  }
  return undefined;
}
