// PROXY protocol version 2 headers, byte by byte.

type Source = { readonly host: string; readonly port: number };
type Oddities = {
  readonly version?: number;
  readonly command?: number;
  readonly family?: number;
  readonly fields?: Buffer;
};

export function proxyV2(source: Source | undefined, odd: Oddities = {}): Buffer {
  const { version = 2, command = 1, fields = Buffer.alloc(0) } = odd;
  const isV6 = source?.host.includes(":");
  const family = odd.family ?? (source === undefined ? 0x00 : isV6 ? 0x21 : 0x11);
  const body = Buffer.concat([source === undefined ? Buffer.alloc(0) : addresses(source), fields]);
  const head = Buffer.alloc(16);
  head.write("\r\n\r\n\0\r\nQUIT\n", "latin1");
  head.writeUInt8((version << 4) | command, 12);
  head.writeUInt8(family, 13);
  head.writeUInt16BE(body.length, 14);
  return Buffer.concat([head, body]);
}

/** A field: type, length, value. */
export function tlv(type: number, value: Uint8Array): Buffer {
  const head = Buffer.alloc(3);
  head.writeUInt8(type, 0);
  head.writeUInt16BE(value.length, 1);
  return Buffer.concat([head, value]);
}

function addresses({ host, port }: Source): Buffer {
  const address = host.includes(":")
    ? Buffer.from(host.split(":").flatMap((word) => words(Number.parseInt(word, 16))))
    : Buffer.from(host.split(".").map(Number));
  return Buffer.concat([address, address, Buffer.from([...words(port), ...words(1883)])]);
}

function words(value: number): [number, number] {
  return [value >>> 8, value & 0xff];
}
