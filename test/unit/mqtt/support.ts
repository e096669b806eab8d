// What the codec tests share: hex in, packets out, and the reason of a refusal.

import { CodedError } from "../../../src/base/index.ts";
import {
  type DecodeContext,
  decodeContextDefault,
  decodePacket,
  type FrameSink,
  type Packet,
  PacketFramer,
  PublishReader,
} from "../../../src/mqtt/index.ts";

export function hex(text: string): Buffer {
  return Buffer.from(text.replace(/[\s|]/g, ""), "hex");
}

export const client5: DecodeContext = decodeContextDefault;
export const client4: DecodeContext = { ...decodeContextDefault, version: 4 };
export const client3: DecodeContext = { ...client4, dupAnywhere: true };
export const server5: DecodeContext = { ...decodeContextDefault, sender: "server" };
export const server4: DecodeContext = { ...server5, version: 4 };

/** Cuts `bytes` into frames and decodes each; throws the first fault. */
export function decodeAll(bytes: Buffer, context: DecodeContext): Packet[] {
  const packets: Packet[] = [];
  const faults: CodedError[] = [];
  const framer = collect(
    1 << 24,
    (frame, start, bodyStart, end) =>
      packets.push(decodePacket(frame, start, bodyStart, end, context)),
    faults,
  );
  framer.push(bytes);
  if (faults[0] !== undefined) throw faults[0];
  if (framer.pendingBytes > 0) throw new Error(`${framer.pendingBytes} bytes left over`);
  return packets;
}

export function decodeOne(bytes: Buffer, context: DecodeContext): Packet {
  const packets = decodeAll(bytes, context);
  if (packets.length !== 1) throw new Error(`${packets.length} packets`);
  return packets[0]!;
}

export type Frame = { bytes: Buffer; start: number; bodyStart: number; end: number };

export function collect(
  sizeBytesMax: number,
  onFrame: (bytes: Buffer, start: number, bodyStart: number, end: number) => void,
  faults: CodedError[],
): PacketFramer {
  const sink: FrameSink = {
    onFrame(bytes, start, bodyStart, end) {
      onFrame(bytes, start, bodyStart, end);
      return true;
    },
    onHeader: () => undefined,
    onFault: (error) => faults.push(error),
  };
  return new PacketFramer(sizeBytesMax, sink);
}

/** The reason code that `bytes` are refused with; the packets when they are not. */
export function verdictOf(bytes: Buffer, context: DecodeContext): number | Packet[] {
  try {
    const packets = decodeAll(bytes, context);
    return packets;
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    return error.details.reasonCode as number;
  }
}

/** The same through the hot way of PUBLISH. */
export function publishVerdictOf(bytes: Buffer, context: DecodeContext): number | undefined {
  const reader = new PublishReader(context);
  const faults: CodedError[] = [];
  const framer = collect(
    1 << 24,
    (frame, start, bodyStart, end) => {
      try {
        reader.read(frame, start, bodyStart, end);
      } catch (error) {
        if (!(error instanceof CodedError)) throw error;
        faults.push(error);
      }
    },
    faults,
  );
  framer.push(bytes);
  return faults[0]?.details.reasonCode as number | undefined;
}
