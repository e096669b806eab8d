// MQTT over WebSocket (section 6), with the handshake and the frames written byte by byte.

import { once } from "node:events";
import { connect as dial, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import { bytes, connect, publish, subscribe4 } from "../support/mqtt-bytes.ts";

const broker = sharedBroker([
  ...["--set", "listeners.web.type=ws"],
  ...["--set", "listeners.web.host=127.0.0.1"],
  ...["--set", "listeners.web.port=0"],
]);

const binary = 0x82;
const text = 0x81;
const close = 8;

/** A WebSocket of our own: it masks what it sends, as clients must, and keeps what comes. */
class WebSocketClient {
  readonly socket: Socket;
  handshake = "";
  isClosed = false;
  /** Opcode and content of each frame. */
  readonly frames: Array<{ readonly opcode: number; readonly content: Buffer }> = [];
  #rest = Buffer.alloc(0);

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (data) => this.#take(data));
    socket.on("error", () => undefined);
    socket.on("close", () => {
      this.isClosed = true;
    });
  }

  send(first: number, content: Uint8Array): void {
    const mask = Buffer.from([1, 2, 3, 4]);
    const masked = Buffer.from(content.map((byte, at) => byte ^ (mask[at % 4] as number)));
    this.socket.write(Buffer.concat([Buffer.from([first, 0x80 | content.length]), mask, masked]));
  }

  /** All MQTT bytes so far, once there are at least so many. */
  async mqtt(size: number): Promise<string> {
    const content = (): Buffer => Buffer.concat(this.frames.map((frame) => frame.content));
    await this.until(() => content().length >= size);
    return content().toString("hex");
  }

  async until(isTrue: () => boolean): Promise<void> {
    const deadline = performance.now() + 5000;
    while (!isTrue()) {
      if (performance.now() > deadline) throw new Error(`late: ${JSON.stringify(this.frames)}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  #take(data: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, data]);
    if (this.handshake === "") {
      const end = this.#rest.indexOf("\r\n\r\n");
      if (end < 0) return;
      this.handshake = this.#rest.toString("latin1", 0, end);
      this.#rest = this.#rest.subarray(end + 4);
    }
    for (;;) {
      const size = this.#rest[1];
      if (size === undefined || this.#rest.length < 2 + size) return;
      const content = Buffer.from(this.#rest.subarray(2, 2 + size));
      this.frames.push({ opcode: (this.#rest[0] as number) & 15, content });
      this.#rest = this.#rest.subarray(2 + size);
    }
  }
}

const open = new Set<Socket>();

afterEach(() => {
  for (const socket of open) socket.destroy();
  open.clear();
});

async function upgrade(protocols: string | undefined): Promise<WebSocketClient> {
  const socket = dial(broker().port, "127.0.0.1");
  open.add(socket);
  await once(socket, "connect");
  const client = new WebSocketClient(socket);
  const offer = protocols === undefined ? "" : `Sec-WebSocket-Protocol: ${protocols}\r\n`;
  socket.write(
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n${offer}\r\n`,
  );
  await client.until(() => client.handshake !== "" || client.isClosed);
  return client;
}

const connecting = (clientId: string): Buffer => connect({ level: 4, clientId });

test.each([
  ["mqtt", "mqtt"],
  ["mqttv3.1", "mqttv3.1"],
  ["mqttv3.1, mqtt", "mqtt"],
  ["other, mqtt", "mqtt"],
  ["mqtt, other", "mqtt"],
])(
  "[6.0.0-3] [6.0.0-4] of the offered %s the broker takes %s and says so",
  async (offer, taken) => {
    const client = await upgrade(offer);
    expect(client.handshake).toMatch(/^HTTP\/1.1 101 /);
    expect(client.handshake).toMatch(new RegExp(`sec-websocket-protocol: ${taken}(\r|$)`, "im"));
    expect(client.handshake).toContain("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    client.send(binary, connecting(`ws ${offer}`));
    expect(await client.mqtt(4)).toBe("20020000");
    expect(client.frames.every(({ opcode }) => opcode === 2)).toBe(true);
  },
);

test("[6.0.0-1] a text frame ends the connection", async () => {
  const client = await upgrade("mqtt");
  client.send(binary, connecting("ws text"));
  expect(await client.mqtt(4)).toBe("20020000");
  client.send(text, Buffer.from("hello"));
  await client.until(
    () => client.isClosed || client.frames.some((frame) => frame.opcode === close),
  );
  expect(client.frames.filter(({ opcode }) => opcode === 2)).toHaveLength(1);
});

test("[6.0.0-2] packets may span frames, and a frame may hold several", async () => {
  const client = await upgrade("mqtt");
  const all = bytes(connecting("ws spans"), subscribe4(1, [["ws/x", 0]]), "c000");
  for (const byte of all) client.send(binary, Buffer.from([byte]));
  expect(await client.mqtt(11)).toMatch(/^20020000(9003000100d000|d0009003000100)$/);
  client.frames.length = 0;
  const several = Buffer.concat([publish("ws/x", "1"), publish("ws/x", "2"), bytes("c000")]);
  client.send(binary, several.subarray(0, 5));
  client.send(binary, several.subarray(5));
  const one = publish("ws/x", "1").toString("hex");
  const two = publish("ws/x", "2").toString("hex");
  const got = await client.mqtt(several.length);
  expect(got.replace("d000", "")).toBe(one + two);
});
