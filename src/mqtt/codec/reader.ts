// A cursor over the body of one packet. It never reads past the packet, whatever follows it in the
// same memory: every short read is a malformed packet.
//
// Strings are checked here once (MQTT 5, 1.5.4): well-formed UTF-8, no surrogates, no U+0000; a BOM
// is an ordinary character. Bytes handed out are copies, numbers and strings own nothing.

import { isUtf8 } from "node:buffer";
import { malformed, mqttErrors } from "../errors.ts";
import { reason } from "./reasons.ts";

/** What is refused beyond the standard. */
export type TextPolicy = {
  readonly refuseControlCharacters: boolean;
  readonly topicLevelsMax: number;
};

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const controlCharacters = /[\u0001-\u001f\u007f-\u009f]/;

export function hasControlCharacters(text: string): boolean {
  return controlCharacters.test(text);
}

export class PacketReader {
  readonly #bytes: Buffer;
  readonly #end: number;
  readonly #policy: TextPolicy;
  #offset: number;

  constructor(bytes: Buffer, start: number, end: number, policy: TextPolicy) {
    this.#bytes = bytes;
    this.#offset = start;
    this.#end = end;
    this.#policy = policy;
  }

  get offset(): number {
    return this.#offset;
  }

  get remaining(): number {
    return this.#end - this.#offset;
  }

  /** A reader of the next `size` bytes, which this one skips. */
  section(size: number, what: string): PacketReader {
    const start = this.#take(size, what);
    return new PacketReader(this.#bytes, start, start + size, this.#policy);
  }

  u8(what: string): number {
    return this.#bytes[this.#take(1, what)] as number;
  }

  u16(what: string): number {
    return this.#bytes.readUInt16BE(this.#take(2, what));
  }

  u32(what: string): number {
    return this.#bytes.readUInt32BE(this.#take(4, what));
  }

  /** Variable byte integer: at most four bytes, and the fewest that hold the value (1.5.5-1). */
  varint(what: string): number {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.u8(what);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (byte === 0 && shift > 0) throw malformed(`${what} is longer than it needs to be`);
        return value;
      }
    }
    throw malformed(`${what} has more than four bytes`);
  }

  string(what: string): string {
    const text = this.topicFilter(what);
    if (this.#policy.refuseControlCharacters && hasControlCharacters(text)) {
      throw malformed(`${what} contains control characters`);
    }
    return text;
  }

  /** The name of a topic, without wildcards (3.3.2-2). Whether it may be empty is the caller's. */
  topicName(what: string): string {
    const text = this.topicFilter(what);
    checkTopicName(text, this.#policy, what);
    return text;
  }

  /** Any text: control characters in a filter fail that filter, not the packet. */
  topicFilter(what: string): string {
    const length = this.u16(what);
    const start = this.#take(length, what);
    return decodeText(this.#bytes, start, start + length, what);
  }

  binary(what: string): Buffer {
    return this.#copy(this.u16(what), what);
  }

  /** All that is left, which may be nothing. */
  rest(): Buffer {
    return this.#copy(this.remaining, "rest");
  }

  expectEnd(what: string): void {
    if (this.remaining > 0) throw malformed(`${what} is followed by ${this.remaining} stray bytes`);
  }

  #copy(size: number, what: string): Buffer {
    const start = this.#take(size, what);
    return Buffer.from(this.#bytes.subarray(start, start + size));
  }

  #take(size: number, what: string): number {
    const start = this.#offset;
    if (size > this.#end - start) throw malformed(`${what} ends past the packet`);
    this.#offset = start + size;
    return start;
  }
}

/** @throws MQTT_PACKET_MALFORMED, MQTT_TOPIC_NAME_INVALID. */
export function checkTopicName(topic: string, policy: TextPolicy, what: string): void {
  if (topic.includes("+") || topic.includes("#")) throw malformed(`wildcard in ${what}`);
  if (policy.refuseControlCharacters && hasControlCharacters(topic)) {
    throw topicNameInvalid("control characters");
  }
  let levels = 1;
  for (let at = topic.indexOf("/"); at >= 0; at = topic.indexOf("/", at + 1)) levels++;
  if (levels > policy.topicLevelsMax) throw topicNameInvalid(`${levels} levels`);
}

function topicNameInvalid(what: string): Error {
  return mqttErrors.topicNameInvalid({ reasonCode: reason.topicNameInvalid, what });
}

/** The text of `bytes[start, end)`. @throws MQTT_PACKET_MALFORMED. */
export function decodeText(bytes: Buffer, start: number, end: number, what: string): string {
  let ascii = true;
  for (let index = start; index < end; index++) {
    const byte = bytes[index] as number;
    if (byte === 0) throw malformed(`${what} contains U+0000`);
    if (byte >= 0x80) ascii = false;
  }
  if (!ascii && !isUtf8(bytes.subarray(start, end))) throw malformed(`${what} is not UTF-8`);
  return bytes.toString(ascii ? "latin1" : "utf8", start, end);
}
