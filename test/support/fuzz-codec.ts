// One case of the codec's fuzzing: a stream of bytes read in several ways that must agree, and
// packets written back that must read the same. Throws where something does not hold; returns what
// the stream came to, in words, by which new behaviour is told from known one.

import { isCodedError } from "../../src/base/index.ts";
import {
  type DecodeContext,
  decodeContextDefault,
  decodePacket,
  encodePacket,
  type Packet,
  PacketFramer,
  PublishReader,
} from "../../src/mqtt/index.ts";

/** A packet, or the reason and the words of its refusal. */
type Outcome = { readonly packet?: Packet; readonly fault?: string };

/** Packets larger than this are refused by the framer. */
const sizeBytesMax = 1000;
const margin = 8;

export function contextOf(version: 4 | 5, sender: "client" | "server"): DecodeContext {
  return { ...decodeContextDefault, version, sender, userPropertiesMax: 3, topicLevelsMax: 4 };
}

/** `cutAt`: where the stream is cut in two for the second reading. */
export function checkStream(stream: Buffer, context: DecodeContext, cutAt: number): string {
  const whole = readStream([stream], (...frame) => checkFrame(...frame, context));
  const parts = [stream.subarray(0, cutAt), stream.subarray(cutAt)];
  const cut = readStream(parts, (bytes, place) => readFrame(bytes, place, context));
  if (!isSame(whole, cut)) throw new Error(`cut at ${cutAt}: ${say(cut)}, not ${say(whole)}`);
  return whole.map(signatureOf).join(" | ");
}

type Place = readonly [start: number, bodyStart: number, end: number];

function readStream(
  chunks: readonly Buffer[],
  read: (bytes: Buffer, place: Place) => Outcome,
): Outcome[] {
  const outcomes: Outcome[] = [];
  const framer = new PacketFramer(sizeBytesMax, {
    onFrame: (bytes, start, bodyStart, end) => {
      outcomes.push(read(bytes, [start, bodyStart, end]));
      return outcomes.at(-1)?.fault === undefined;
    },
    onHeader: () => undefined,
    onFault: (error) => outcomes.push({ fault: faultOf(error) }),
  });
  for (const chunk of chunks) {
    if (outcomes.at(-1)?.fault === undefined) framer.push(chunk);
  }
  return outcomes;
}

function readFrame(bytes: Buffer, place: Place, context: DecodeContext): Outcome {
  return outcomeOf(() => decodePacket(bytes, ...place, context));
}

function checkFrame(bytes: Buffer, place: Place, context: DecodeContext): Outcome {
  const outcome = readFrame(bytes, place, context);
  checkPlaceIndependence(bytes, place, context, outcome);
  if ((bytes[place[0]] as number) >>> 4 === 3 && context.sender === "client") {
    checkHotWay(bytes, place, context, outcome);
  }
  if (outcome.packet !== undefined) checkRoundTrip(outcome.packet, context);
  return outcome;
}

/** Nothing but the packet's own bytes decides about it. */
function checkPlaceIndependence(
  bytes: Buffer,
  [start, bodyStart, end]: Place,
  context: DecodeContext,
  outcome: Outcome,
): void {
  for (const filler of [0x00, 0xff]) {
    const around = Buffer.alloc(end - start + 2 * margin, filler);
    bytes.copy(around, margin, start, end);
    const place = [margin, margin + bodyStart - start, margin + end - start] as const;
    const moved = readFrame(around, place, context);
    if (!isSame(moved, outcome)) {
      throw new Error(`elsewhere ${say([moved])}, not ${say([outcome])}`);
    }
  }
}

function checkHotWay(bytes: Buffer, place: Place, context: DecodeContext, outcome: Outcome): void {
  const reader = new PublishReader(context);
  const hot = outcomeOf((): Packet => {
    const publish = reader.read(bytes, ...place);
    const { topic, qos, dup, retain, packetId } = publish;
    const payload = Buffer.from(publish.payload);
    const properties = publish.decodeProperties();
    return { type: "publish", topic, payload, qos, dup, retain, packetId, properties };
  });
  // Of several faults each way may find another one first.
  if (!isSame(hot.packet, outcome.packet)) {
    throw new Error(`the hot way ${say([hot])}, not ${say([outcome])}`);
  }
}

function checkRoundTrip(packet: Packet, context: DecodeContext): void {
  const written = encodePacket(packet, context.version);
  const again = readOne(written, context);
  if (!isSame(again.packet, packet)) {
    throw new Error(`written back ${written.toString("hex")} reads ${say([again])}`);
  }
}

function readOne(bytes: Buffer, context: DecodeContext): Outcome {
  let outcome: Outcome = { fault: "nothing" };
  const framer = new PacketFramer(1 << 28, {
    onFrame: (frame, start, bodyStart, end) => {
      outcome = outcomeOf(() => decodePacket(frame, start, bodyStart, end, context));
      return true;
    },
    onHeader: () => undefined,
    onFault: (error) => {
      outcome = { fault: faultOf(error) };
    },
  });
  framer.push(bytes);
  return outcome;
}

function outcomeOf(read: () => Packet): Outcome {
  try {
    return { packet: read() };
  } catch (error) {
    return { fault: faultOf(error) };
  }
}

/** Anything but a coded refusal with a reason for the peer is a fault of ours. */
function faultOf(error: unknown): string {
  if (!isCodedError(error) || typeof error.details.reasonCode !== "number") throw error;
  return `0x${error.details.reasonCode.toString(16)} ${error.message}`;
}

/** Of what packets are made of: plain values, lists, records and bytes. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object") return false;
  if (one === null || other === null) return false;
  if (one instanceof Uint8Array || other instanceof Uint8Array) {
    const areBytes = one instanceof Uint8Array && other instanceof Uint8Array;
    return areBytes && Buffer.compare(one, other) === 0;
  }
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  if (names.length !== Object.keys(other).length) return false;
  return names.every(
    (name) =>
      Object.hasOwn(other, name) &&
      isSame(one[name as keyof typeof one], other[name as keyof typeof other]),
  );
}

function signatureOf({ packet, fault }: Outcome): string {
  if (fault !== undefined) return fault.replace(/\d+/g, "N").replace(/^NxN/, fault.slice(0, 4));
  const names =
    packet !== undefined && "properties" in packet ? Object.keys(packet.properties) : [];
  return `${packet?.type} ${names.length > 0 ? "with properties" : "plain"}`;
}

function say(outcomes: readonly Outcome[]): string {
  return JSON.stringify(outcomes);
}
