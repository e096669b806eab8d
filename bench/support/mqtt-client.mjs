// A client of MQTT for benches: it says whole packets, or bytes that are none, and tells what comes.

import { connect } from "node:net";
import {
  decodeContextDefault,
  decodePacket,
  encodePacket,
  PacketFramer,
} from "../../dist/mqtt/index.js";

export class Client {
  /** `localAddress`: one of 127.0.0.0/8, where bounds of an address are not what counts. */
  constructor(port, version = 5, localAddress = "127.0.0.1") {
    this.version = version;
    this.onPacket = () => undefined;
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true, localAddress });
    this.closed = new Promise((resolve) => this.socket.once("close", resolve));
    this.socket.on("error", () => undefined);
    const context = { ...decodeContextDefault, sender: "server", version };
    const framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, body, end) => {
        this.onPacket(decodePacket(bytes, start, body, end, context));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    this.socket.on("data", (bytes) => framer.push(bytes));
  }

  say(...packets) {
    this.bytes(Buffer.concat(packets.map((packet) => encodePacket(packet, this.version))));
    return this;
  }

  bytes(bytes) {
    if (!this.socket.destroyed) this.socket.write(bytes);
    return this;
  }

  end() {
    this.socket.destroy();
  }
}

export const connecting = (clientId, more = {}) => ({
  type: "connect",
  level: 5,
  bridge: false,
  clientId,
  cleanStart: true,
  keepAliveS: 0,
  properties: {},
  ...more,
});

export const publishing = (topic, payload, qos, packetId, retain = false) => ({
  ...{ type: "publish", topic, payload: Buffer.from(payload), qos, packetId, retain, dup: false },
  properties: {},
});

export const subscribing = (filter, qos) => ({
  type: "subscribe",
  packetId: 1,
  filters: [
    { filter, options: { qos, noLocal: false, retainAsPublished: false, retainHandling: 0 } },
  ],
  properties: {},
});

/** Of a CONNECT: a session that stays for so long. */
export const lasting = (sessionExpiryS) => ({ cleanStart: false, properties: { sessionExpiryS } });
