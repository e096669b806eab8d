// Packets for fuzzing, made field by field: mostly legal, each with its chance of a fault where
// parsers have theirs (lengths, property lists, texts, ids, flags), and damage to finished bytes.
// Plain bytes; nothing is shared with the codec under test.

import type { SeededRandom } from "../../src/base/index.ts";

export const packetKinds = [
  "connect",
  "connack",
  "publish",
  "puback",
  "pubrec",
  "pubrel",
  "pubcomp",
  "subscribe",
  "suback",
  "unsubscribe",
  "unsuback",
  "pingreq",
  "pingresp",
  "disconnect",
  "auth",
] as const;
export type PacketKind = (typeof packetKinds)[number];

type ValueKind = "byte" | "u16" | "u32" | "varint" | "text" | "binary" | "pair";

/** Identifier, kind of its value, packets it belongs to; "will" for the will of a CONNECT. */
const propertyKinds: ReadonlyArray<
  readonly [id: number, kind: ValueKind, places: ReadonlyArray<PacketKind | "will">]
> = [
  [0x01, "byte", ["publish", "will"]],
  [0x02, "u32", ["publish", "will"]],
  [0x03, "text", ["publish", "will"]],
  [0x08, "text", ["publish", "will"]],
  [0x09, "binary", ["publish", "will"]],
  [0x0b, "varint", ["subscribe"]],
  [0x11, "u32", ["connect", "connack", "disconnect"]],
  [0x12, "text", ["connack"]],
  [0x13, "u16", ["connack"]],
  [0x15, "text", ["connect", "connack", "auth"]],
  [0x16, "binary", ["connect", "connack", "auth"]],
  [0x17, "byte", ["connect"]],
  [0x18, "u32", ["will"]],
  [0x19, "byte", ["connect"]],
  [0x1a, "text", ["connack"]],
  [0x1c, "text", ["connack"]],
  [
    0x1f,
    "text",
    ["connack", "puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback", "auth"],
  ],
  [0x21, "u16", ["connect", "connack"]],
  [0x22, "u16", ["connect", "connack"]],
  [0x23, "u16", ["publish"]],
  [0x24, "byte", ["connack"]],
  [0x25, "byte", ["connack"]],
  [0x26, "pair", [...packetKinds, "will"]],
  [0x27, "u32", ["connect", "connack"]],
  [0x28, "byte", ["connack"]],
  [0x29, "byte", ["connack"]],
  [0x2a, "byte", ["connack"]],
];

const goodTexts = ["a", "b", "a/b", "t/1", "é", "\u{1F600}", "x".repeat(130), "\ufeffa", "m"];
const goodFilters = [...goodTexts, "#", "a/#", "+/b", "+", "$SYS/#", "$share/g/a/+"];
const oddTexts = [
  "",
  "+",
  "#",
  "a/#",
  "a/+/b",
  "#/a",
  "a+",
  "$SYS/x",
  "$share/g/a",
  "$share/g/",
  "\n",
];
const badTexts = ["00", "ff", "c080", "eda080", "e282", "f4908080", "6100"].map((hex) =>
  Buffer.from(hex, "hex"),
);
const bounds = [0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x3fff, 0x7fff, 0xffff];
const reasons = [
  0, 0, 0, 1, 2, 4, 0x10, 0x11, 0x18, 0x19, 0x80, 0x81, 0x87, 0x92, 0x97, 0x9c, 0xa2,
];

const goodReasons: Partial<Record<PacketKind, readonly number[]>> = {
  puback: [0, 0x10, 0x87, 0x97],
  pubrec: [0, 0x10, 0x87, 0x97],
  pubrel: [0, 0, 0x92],
  pubcomp: [0, 0, 0x92],
  disconnect: [0, 0x04, 0x80],
  auth: [0x18, 0x19],
};

export class PacketFuzz {
  readonly random: SeededRandom;
  /** Put first into the properties of CONNECT and AUTH. */
  authenticationMethod: string | undefined;
  /** Chance of a fault for each field. */
  faultChance = 0.02;

  constructor(random: SeededRandom) {
    this.random = random;
  }

  /** A packet in the form of 3.1.1 (4) or 5. */
  packet(kind: PacketKind, version: 4 | 5): Buffer {
    const first = this.#firstByte(kind);
    const body = this.#body(kind, version, first);
    return Buffer.concat([Buffer.from([first]), this.#length(body.length), body]);
  }

  anyKind(): PacketKind {
    return this.random.pick(packetKinds);
  }

  /** Cuts, repeats, swaps or changes bytes. */
  damage(bytes: Buffer): Buffer {
    const { random } = this;
    const out = Buffer.from(bytes);
    const at = random.below(Math.max(1, out.length));
    switch (random.below(6)) {
      case 0:
        out[at] = random.below(256);
        return out;
      case 1:
        out[at] = (out[at] ?? 0) ^ (1 << random.below(8));
        return out;
      case 2:
        return out.subarray(0, at);
      case 3:
        return Buffer.concat([
          out.subarray(0, at),
          random.bytes(1 + random.below(4)),
          out.subarray(at),
        ]);
      case 4: {
        const to = at + random.below(8);
        return Buffer.concat([out.subarray(0, at), out.subarray(to)]);
      }
      default: {
        const part = out.subarray(at, at + random.below(12));
        return Buffer.concat([out.subarray(0, at), part, out.subarray(at)]);
      }
    }
  }

  #firstByte(kind: PacketKind): number {
    const type = packetKinds.indexOf(kind) + 1;
    if (this.#faulty()) return this.random.below(256);
    if (kind === "publish") {
      const qos = this.random.below(this.#faulty() ? 4 : 3);
      const dup = qos > 0 && this.random.chance(0.2) ? 8 : 0;
      return 0x30 | dup | (qos << 1) | this.random.below(2);
    }
    const has2 = kind === "pubrel" || kind === "subscribe" || kind === "unsubscribe";
    return (type << 4) | (has2 ? 2 : 0);
  }

  #body(kind: PacketKind, version: 4 | 5, first: number): Buffer {
    const { random } = this;
    const five = version === 5;
    switch (kind) {
      case "connect":
        return this.#connect(version);
      case "connack":
        return Buffer.concat([
          Buffer.from([random.below(2), five ? random.pick(reasons) : random.below(6)]),
          five ? this.#properties(kind) : empty,
        ]);
      case "publish":
        return this.#publish(five, first);
      case "puback":
      case "pubrec":
      case "pubrel":
      case "pubcomp":
        return Buffer.concat([this.#id(), five ? this.#reasonAndProperties(kind) : empty]);
      case "subscribe":
      case "unsubscribe":
        return this.#filters(kind, five);
      case "suback":
      case "unsuback":
        return Buffer.concat([
          this.#id(),
          five ? this.#properties(kind) : empty,
          Buffer.from([random.pick(reasons)]),
        ]);
      case "disconnect":
      case "auth":
        return five ? this.#reasonAndProperties(kind) : empty;
      default:
        return empty;
    }
  }

  #connect(version: 4 | 5): Buffer {
    const { random } = this;
    const old = version === 4 && random.chance(0.2);
    const name = this.#faulty() ? this.#text() : field(Buffer.from(old ? "MQIsdp" : "MQTT"));
    const level = this.#faulty() ? random.below(256) : old ? 3 : version;
    const hasWill = random.chance(0.3);
    const hasUser = random.chance(0.3);
    const hasPassword = hasUser && random.chance(0.5);
    let flags = (hasUser ? 0x80 : 0) | (hasPassword ? 0x40 : 0) | (random.below(2) << 1);
    if (hasWill) flags |= 0x04 | (random.below(3) << 3) | (random.below(2) << 5);
    if (this.#faulty()) flags = random.below(256);
    const will = [version === 5 ? this.#properties("will") : empty, this.#topic(), this.#binary()];
    return Buffer.concat([
      name,
      Buffer.from([level | (version === 4 && random.chance(0.05) ? 0x80 : 0), flags]),
      this.#u16(random.pick(bounds)),
      version === 5 ? this.#properties("connect") : empty,
      random.chance(0.1) ? this.#text() : field(Buffer.from(`c${random.below(5)}`)),
      ...(hasWill ? will : []),
      ...(hasUser ? [this.#text()] : []),
      ...(hasPassword ? [this.#binary()] : []),
    ]);
  }

  #publish(five: boolean, first: number): Buffer {
    const { random } = this;
    const topic = five && random.chance(0.03) ? field(empty) : this.#topic();
    return Buffer.concat([
      topic,
      (first & 6) > 0 !== this.#faulty() ? this.#id() : empty,
      five ? this.#properties("publish") : empty,
      random.bytes(random.pick([0, 1, 5, 40])),
    ]);
  }

  #filters(kind: "subscribe" | "unsubscribe", five: boolean): Buffer {
    const { random } = this;
    const parts = [this.#id(), five ? this.#properties(kind) : empty];
    const count = this.#faulty() ? 0 : 1 + random.below(3);
    for (let n = 0; n < count; n++) {
      parts.push(this.#faulty() ? this.#text() : field(Buffer.from(random.pick(goodFilters))));
      if (kind === "unsubscribe") continue;
      const options = this.#faulty() ? random.below(256) : random.below(3);
      parts.push(Buffer.from([five ? options | ((random.below(16) << 2) & 0x2c) : options]));
    }
    return Buffer.concat(parts);
  }

  #reasonAndProperties(kind: PacketKind): Buffer {
    const { random } = this;
    const form = random.below(3);
    if (form === 0 && kind !== "auth") return empty;
    const good = goodReasons[kind] ?? [0];
    const reasonCode = Buffer.from([this.#faulty() ? random.pick(reasons) : random.pick(good)]);
    return form === 1 ? reasonCode : Buffer.concat([reasonCode, this.#properties(kind)]);
  }

  #properties(place: PacketKind | "will"): Buffer {
    const { random } = this;
    const parts: Buffer[] = [];
    const used = new Set<number>();
    const method = this.authenticationMethod;
    if (method !== undefined && (place === "auth" || place === "connect")) {
      used.add(0x15);
      parts.push(Buffer.from([0x15]), field(Buffer.from(method)));
    }
    const own = propertyKinds.filter(([, , places]) => places.includes(place));
    for (let n = random.below(4); n > 0; n--) {
      const [id, kind] = this.#faulty() ? random.pick(propertyKinds) : random.pick(own);
      if (id !== 0x26 && used.has(id) && !this.#faulty()) continue;
      // Data without a method is a fault.
      if (id === 0x16 && method === undefined && !this.#faulty()) continue;
      used.add(id);
      const value = id === 0x08 ? this.#topic() : this.#value(kind);
      parts.push(this.#faulty() ? varint(random.below(300)) : varint(id), value);
    }
    const list = Buffer.concat(parts);
    return Buffer.concat([this.#length(list.length), list]);
  }

  #value(kind: ValueKind): Buffer {
    const { random } = this;
    switch (kind) {
      case "byte":
        return Buffer.from([this.#faulty() ? random.below(256) : random.below(2)]);
      case "u16":
        return this.#u16(this.#faulty() ? 0 : 1 + random.pick(bounds.slice(0, 4)));
      case "u32":
        return Buffer.concat([
          this.#u16(random.pick([0, 0, 1, 0xffff])),
          this.#u16(this.#faulty() ? 0 : random.pick([60, 300, 0xffff])),
        ]);
      case "varint":
        return varint(this.#faulty() ? 0 : random.pick([1, 127, 128, 16_383, 268_435_455]));
      case "text":
        return this.#text();
      case "binary":
        return this.#binary();
      case "pair":
        return Buffer.concat([this.#text(), this.#text()]);
    }
  }

  #id(): Buffer {
    return this.#u16(this.#faulty() ? this.random.pick(bounds) : 1 + this.random.below(6));
  }

  #topic(): Buffer {
    return this.#faulty() ? this.#text() : field(Buffer.from(this.random.pick(goodTexts)));
  }

  #text(): Buffer {
    const { random } = this;
    if (this.#faulty()) return field(random.pick(badTexts));
    const content = Buffer.from(
      random.chance(0.8) ? random.pick(goodTexts) : random.pick(oddTexts),
    );
    if (!this.#faulty()) return field(content);
    return Buffer.concat([this.#u16(random.pick(bounds)), content]);
  }

  #binary(): Buffer {
    return field(this.random.bytes(this.random.pick([0, 1, 7, 200])));
  }

  #u16(value: number): Buffer {
    return Buffer.from([value >> 8, value & 0xff]);
  }

  #length(length: number): Buffer {
    const { random } = this;
    if (!this.#faulty()) return varint(length);
    const wrong = Math.max(0, length + random.between(-3, 3));
    // Too long a form, or the wrong length.
    const form = varint(random.chance(0.5) ? wrong : length);
    if (random.chance(0.7)) return form;
    form[form.length - 1] = (form.at(-1) as number) | 0x80;
    return Buffer.concat([form, Buffer.from([0])]);
  }

  #faulty(): boolean {
    return this.random.chance(this.faultChance);
  }
}

const empty = Buffer.alloc(0);

function field(content: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from([content.length >> 8, content.length & 0xff]), content]);
}

function varint(value: number): Buffer {
  const digits: number[] = [];
  let rest = value;
  do {
    const digit = rest % 128;
    rest = Math.floor(rest / 128);
    digits.push(rest > 0 ? digit | 0x80 : digit);
  } while (rest > 0);
  return Buffer.from(digits);
}
