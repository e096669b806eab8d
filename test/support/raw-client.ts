// A client that speaks MQTT in raw bytes, for tests of what a broker does with exact packets. It cuts
// the stream into frames itself and decodes them with mqtt-packet, an implementation that shares
// nothing with ours. What mqtt-packet cannot decode is still there as bytes.
//
// Nothing is answered by itself: no acks, no pings. Every wait has a limit and says what did arrive.

import { connect, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import mqttPacket from "mqtt-packet";

export type Packet = mqttPacket.Packet;
export type PacketKind = NonNullable<Packet["cmd"]>;
export type PacketOf<K extends PacketKind> = Extract<Packet, { cmd: K }>;

export type Frame = {
  readonly bytes: Buffer;
  /** Packet type, 1 to 15. */
  readonly type: number;
  readonly flags: number;
  /** Decoded when it is asked for. Undefined when mqtt-packet refuses the bytes. */
  readonly packet: Packet | undefined;
};

export type ProtocolLevel = 3 | 4 | 5;

const waitMsDefault = 5000;

export class RawClient {
  readonly level: ProtocolLevel;
  readonly #socket: Socket;
  readonly #frames: Frame[] = [];
  #rest = Buffer.alloc(0);
  #end: string | undefined;
  #wake: () => void = () => undefined;
  #handler: ((frame: Frame) => void) | undefined;

  private constructor(socket: Socket, level: ProtocolLevel) {
    this.#socket = socket;
    this.level = level;
    socket.setNoDelay(true);
    socket.on("data", (bytes) => this.#take(bytes));
    socket.on("error", (error) => this.#ended(`error: ${(error as NodeJS.ErrnoException).code}`));
    socket.on("end", () => this.#ended("closed"));
    socket.on("close", () => this.#ended("closed"));
  }

  static open(port: number, level: ProtocolLevel = 5, host = "127.0.0.1"): Promise<RawClient> {
    return opened(connect({ port, host, allowHalfOpen: true }), "connect", level);
  }

  static openTls(options: ConnectionOptions, level: ProtocolLevel = 5): Promise<RawClient> {
    return opened(connectTls({ host: "127.0.0.1", ...options }), "secureConnect", level);
  }

  /** For a socket that is open. */
  static over(socket: Socket, level: ProtocolLevel): RawClient {
    return new RawClient(socket, level);
  }

  /** Bytes as they are: a Buffer, or hex with spaces (`c0 00`). */
  send(bytes: Uint8Array | string): void {
    this.#socket.write(typeof bytes === "string" ? parseHex(bytes) : bytes);
  }

  sendPacket(packet: Packet): void {
    this.send(mqttPacket.generate(packet, { protocolVersion: this.level }));
  }

  /** CONNECT with sensible defaults; resolves with the CONNACK. */
  async connect(options: Partial<mqttPacket.IConnectPacket> = {}): Promise<PacketOf<"connack">> {
    this.sendPacket({
      cmd: "connect",
      protocolId: this.level === 3 ? "MQIsdp" : "MQTT",
      protocolVersion: this.level,
      clientId: "raw",
      clean: true,
      keepalive: 0,
      ...options,
    } as mqttPacket.IConnectPacket);
    return await this.expect("connack");
  }

  /** From now on frames go to the handler at once, those that wait first. */
  handle(handler: (frame: Frame) => void): void {
    this.#handler = handler;
    for (const frame of this.#frames.splice(0)) handler(frame);
  }

  /** The next frame, whatever it is. */
  async next(withinMs = waitMsDefault): Promise<Frame> {
    const frame = await this.#wait(withinMs, () => this.#frames.shift());
    if (frame === undefined) throw new Error(this.#said(this.#missing("packet", withinMs)));
    return frame;
  }

  /** The next packet, which must be of this kind. */
  async expect<K extends PacketKind>(kind: K, withinMs = waitMsDefault): Promise<PacketOf<K>> {
    const frame = await this.#wait(withinMs, () => this.#frames.shift());
    if (frame === undefined) throw new Error(this.#said(this.#missing(kind, withinMs)));
    const { packet } = frame;
    if (packet?.cmd !== kind) {
      throw new Error(this.#said(`${formatFrame(frame)} came where ${kind} was expected`));
    }
    return packet as PacketOf<K>;
  }

  /** The next bytes must be exactly these. */
  async expectBytes(wantedBytes: Uint8Array | string, withinMs = waitMsDefault): Promise<void> {
    const { bytes } = await this.next(withinMs);
    const wanted = typeof wantedBytes === "string" ? parseHex(wantedBytes) : wantedBytes;
    if (!bytes.equals(wanted)) {
      throw new Error(
        `expected ${Buffer.from(wanted).toString("hex")}, got ${bytes.toString("hex")}`,
      );
    }
  }

  /** The broker must end the connection; packets before that are returned. */
  async expectClosed(withinMs = waitMsDefault): Promise<Frame[]> {
    const end = await this.#wait(withinMs, () => this.#end);
    if (end === undefined) throw new Error(this.#said(`still open after ${withinMs} ms`));
    return this.#frames.splice(0);
  }

  /** Shows that nothing more comes: a PINGREQ is answered before anything else. */
  async expectNothing(withinMs = waitMsDefault): Promise<void> {
    this.send("c000");
    await this.expect("pingresp", withinMs);
  }

  /**
   * The broker ends the connection for a reason: MQTT 5 clients get it in DISCONNECT, others find the
   * connection closed without a packet.
   */
  async expectRefused(reasonCode: number, withinMs = waitMsDefault): Promise<void> {
    const frames = await this.expectClosed(withinMs);
    const wanted = this.level === 5 ? [`e0 ${reasonCode.toString(16)}`] : [];
    const found = frames.map(({ bytes }) => {
      const first = (bytes[0] as number).toString(16);
      return first === "e0" ? `e0 ${(bytes[2] ?? 0).toString(16)}` : bytes.toString("hex");
    });
    if (found.join() !== wanted.join()) {
      throw new Error(`expected ${wanted.join() || "nothing"} and the end, got ${found.join()}`);
    }
  }

  /** Nothing comes for a time, and the connection stays. */
  async expectSilence(forMs: number): Promise<void> {
    const frame = await this.#wait(forMs, () => this.#frames.shift());
    if (frame !== undefined) throw new Error(this.#said(`${formatFrame(frame)} in a silence`));
    if (this.#end !== undefined) throw new Error(this.#said("ended in a silence"));
  }

  get isClosed(): boolean {
    return this.#end !== undefined;
  }

  /** Stops reading, so that the broker's output backs up. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Ends without DISCONNECT, as a lost link that the network noticed. */
  drop(): void {
    this.#socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    const gone = new Promise((resolve) => this.#socket.once("close", resolve));
    if (this.#socket.destroyed) return;
    this.#socket.destroy();
    await gone;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #take(bytes: Buffer): void {
    const cut = cutFrames(Buffer.concat([this.#rest, bytes]));
    this.#rest = Buffer.from(cut.rest);
    for (const bytes of cut.frames) {
      const frame = new ReceivedFrame(bytes, this.level);
      if (this.#handler === undefined) this.#frames.push(frame);
      else this.#handler(frame);
    }
    this.#wake();
  }

  #ended(how: string): void {
    this.#end ??= how;
    this.#socket.end();
    this.#wake();
  }

  /** One that was closed, by overload say, did not run out of time. */
  #missing(what: string, withinMs: number): string {
    return this.#end === undefined ? `no ${what} within ${withinMs} ms` : `no ${what} came`;
  }

  #said(text: string): string {
    const others = this.#frames.map(formatFrame).join(", ");
    const state = this.#end === undefined ? "open" : this.#end;
    return `${text}; the connection is ${state}; behind that: ${others || "nothing"}`;
  }

  async #wait<T>(withinMs: number, take: () => T | undefined): Promise<T | undefined> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const taken = take();
      const restMs = deadline - performance.now();
      if (taken !== undefined || restMs <= 0) return taken;
      // A closed connection brings nothing more.
      if (this.#end !== undefined) return undefined;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, restMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

function opened(socket: Socket, event: string, level: ProtocolLevel): Promise<RawClient> {
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once(event, () => {
      socket.off("error", reject);
      resolve(RawClient.over(socket, level));
    });
  });
}

export function parseHex(hex: string): Buffer {
  const digits = hex.replace(/\s+/g, "");
  if (!/^([0-9a-fA-F]{2})*$/.test(digits)) throw new Error(`not hex: ${hex}`);
  return Buffer.from(digits, "hex");
}

/** Whole MQTT frames at the start of a stream, and what is left. */
export function cutFrames(stream: Buffer): { frames: Buffer[]; rest: Buffer } {
  const frames: Buffer[] = [];
  let at = 0;
  for (;;) {
    const end = frameEnd(stream, at);
    if (end === undefined || end > stream.length) return { frames, rest: stream.subarray(at) };
    frames.push(stream.subarray(at, end));
    at = end;
  }
}

function frameEnd(stream: Buffer, at: number): number | undefined {
  let size = 0;
  for (let index = 0; index < 4; index++) {
    const byte = stream[at + 1 + index];
    if (byte === undefined) return undefined;
    size += (byte & 0x7f) * 128 ** index;
    if (byte < 0x80) return at + 2 + index + size;
  }
  throw new Error(`malformed remaining length at ${stream.subarray(at, at + 5).toString("hex")}`);
}

class ReceivedFrame implements Frame {
  readonly bytes: Buffer;
  readonly type: number;
  readonly flags: number;
  readonly #level: ProtocolLevel;

  constructor(bytes: Buffer, level: ProtocolLevel) {
    const first = bytes[0] as number;
    this.bytes = bytes;
    this.type = first >> 4;
    this.flags = first & 15;
    this.#level = level;
  }

  get packet(): Packet | undefined {
    const parser = mqttPacket.parser({ protocolVersion: this.#level });
    let packet: Packet | undefined;
    parser.on("packet", (found) => {
      packet = found;
    });
    // An error leaves the packet undefined: the test looks at the bytes then.
    parser.on("error", () => {
      packet = undefined;
    });
    parser.parse(this.bytes);
    return packet;
  }
}

export function formatFrame(frame: Frame): string {
  const name = frame.packet?.cmd ?? `type ${frame.type}`;
  const hex = frame.bytes.subarray(0, 32).toString("hex");
  return `${name} (${hex}${frame.bytes.length > 32 ? "..." : ""})`;
}
