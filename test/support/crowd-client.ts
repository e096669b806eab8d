// What every client of the crowd has: a connection at a time on the simulated network, CONNECT and
// CONNACK, and the ways to lose it. Clients keep their session state over connections and crash
// never; what they leave behind (a socket nobody reads any more) stays with the broker.

import type { ByteConnection, SeededRandom } from "../../src/base/index.ts";
import {
  type ConnackPacket,
  type DecodeContext,
  decodeContextDefault,
  decodePacket,
  encodePacket,
  type Packet,
  PacketFramer,
  type PublishAckType,
  type Will,
} from "../../src/mqtt/index.ts";
import { type BrokerMachine, brokerHost, brokerPort } from "./broker-machine.ts";
import type { SubscriptionOracle } from "./subscription-oracle.ts";

/** What clients share. */
export type Crowd = {
  readonly machine: BrokerMachine;
  readonly oracle: SubscriptionOracle;
  readonly random: SeededRandom;
  /** Writes an event down: for the hash of the run and for who reads a failure. */
  note(text: string): void;
  fault(text: string): void;
  /** The disk was full a short while ago, or the node is stopping: refusals are right. */
  readonly mayRefuse: boolean;
};

export type ClientOptions = {
  readonly clientId: string;
  readonly level: 4 | 5;
  readonly durable: boolean;
  readonly receiveMaximum?: number;
  readonly hasWills?: boolean;
};

const shuttingDown = 0x8b;
const takenOver = 0x8e;
const failureMin = 0x80;

export abstract class CrowdClient {
  readonly options: ClientOptions;
  /** CONNACK has come and the connection lives. */
  isReady = false;
  /** Counts CONNECTs. */
  connection = 0;
  protected readonly crowd: Crowd;
  protected readonly random: SeededRandom;
  #transport: ByteConnection | undefined;
  /** Of the dial or connection that counts; others are left behind. */
  #current = 0;
  #isDialling = false;
  #hadSession = false;
  #framer: PacketFramer | undefined;
  readonly #context: DecodeContext;

  constructor(crowd: Crowd, options: ClientOptions) {
    this.crowd = crowd;
    this.options = options;
    this.random = crowd.random.split(options.clientId);
    const version = options.level;
    this.#context = { ...decodeContextDefault, sender: "server", version };
  }

  get name(): string {
    return this.options.clientId;
  }

  get isConnected(): boolean {
    return this.#transport !== undefined || this.#isDialling;
  }

  connect(): void {
    if (this.isConnected) return;
    const current = ++this.#current;
    this.#isDialling = true;
    const isCurrent = (): boolean => current === this.#current;
    const { network } = this.crowd.machine;
    network
      .host(this.name)
      .connect({ host: brokerHost, port: brokerPort }, (transport) => {
        if (isCurrent()) this.#opened(transport);
        else transport.destroy();
        return {
          onData: (bytes) => {
            if (isCurrent()) this.#framer?.push(bytes);
          },
          onDrain: () => undefined,
          onClose: () => {
            if (isCurrent()) this.#lost("closed");
          },
        };
      })
      .catch(() => {
        if (isCurrent()) this.#isDialling = false;
      });
  }

  /** The client goes without a word. */
  drop(): void {
    const transport = this.#transport;
    this.#lost("drops");
    transport?.destroy();
  }

  /** The client forgets its connection; the broker is not told. */
  abandon(): void {
    this.#lost("abandons");
  }

  /** DISCONNECT. */
  disconnect(): void {
    if (!this.isReady) return;
    const transport = this.#transport;
    this.say({ type: "disconnect", reasonCode: 0, properties: {} });
    this.#lost("disconnects");
    transport?.end();
  }

  protected abstract ready(sessionPresent: boolean): void;
  protected abstract packet(packet: Packet): void;
  protected abstract lost(): void;

  protected say(packet: Packet): void {
    this.#transport?.write(encodePacket(packet, this.options.level));
  }

  protected ack(type: PublishAckType, packetId: number): void {
    this.say({ type, packetId, reasonCode: 0, properties: {} });
  }

  protected note(text: string): void {
    this.crowd.note(`${this.name} ${text}`);
  }

  protected fault(text: string): void {
    this.crowd.fault(`${this.name}: ${text}`);
  }

  /** A reason code of at least 0x80: right only when there is no room or no time. */
  protected refused(what: string, reasonCode: number): void {
    this.note(`is refused: ${what} 0x${reasonCode.toString(16)}`);
    if (!this.crowd.mayRefuse) this.fault(`${what} refused with 0x${reasonCode.toString(16)}`);
  }

  #opened(transport: ByteConnection): void {
    this.#isDialling = false;
    this.#transport = transport;
    this.connection++;
    const current = this.#current;
    this.#framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, bodyStart, end) => {
        this.#packet(decodePacket(bytes, start, bodyStart, end, this.#context));
        return current === this.#current;
      },
      onHeader: () => undefined,
      onFault: (error) => this.fault(String(error)),
    });
    const { clientId, level, durable, receiveMaximum, hasWills = false } = this.options;
    const properties =
      level === 5
        ? { ...(durable && { sessionExpiryS: 3600 }), ...(receiveMaximum && { receiveMaximum }) }
        : {};
    const will = hasWills && this.random.chance(0.5) ? this.#makeWill() : undefined;
    this.say({
      type: "connect",
      level,
      bridge: false,
      clientId,
      cleanStart: !durable,
      keepAliveS: 0,
      properties,
      ...(will && { will }),
    });
  }

  #makeWill(): Will {
    const topic = `w/${this.name}`;
    const { connection } = this;
    const what = { topic, qos: 2, retain: false, isEmpty: false, connection } as const;
    const message = this.crowd.oracle.send(`will-${this.name}`, what);
    const payload = Buffer.from(`will-${this.name} ${message.number} 0 `);
    return { topic, payload, qos: 2, retain: false, properties: {} };
  }

  #packet(packet: Packet): void {
    if (packet.type === "connack") this.#connack(packet);
    else if (packet.type === "disconnect") this.#disconnected(packet.reasonCode);
    else this.packet(packet);
  }

  #connack(packet: ConnackPacket): void {
    const { reasonCode, sessionPresent } = packet;
    if (reasonCode !== 0) {
      this.refused("CONNECT", reasonCode);
      return;
    }
    this.note(`is connected${sessionPresent ? " again" : ""}`);
    const { durable } = this.options;
    if (sessionPresent !== (durable && this.#hadSession)) {
      // A CONNECT whose answer was lost may have made the session.
      if (this.#hadSession || !durable) this.fault(`session present: ${sessionPresent}`);
    }
    this.#hadSession = durable;
    this.isReady = true;
    this.ready(sessionPresent);
  }

  #disconnected(reasonCode: number): void {
    this.note(`gets DISCONNECT 0x${reasonCode.toString(16)}`);
    if (reasonCode === shuttingDown || reasonCode === takenOver) return;
    if (reasonCode >= failureMin) this.refused("connection", reasonCode);
  }

  #lost(how: string): void {
    if (!this.isConnected) return;
    this.#current++;
    this.#isDialling = false;
    this.#framer?.stop();
    this.#framer = undefined;
    this.note(how);
    const hadConnection = this.#transport !== undefined;
    this.#transport = undefined;
    this.isReady = false;
    if (hadConnection) this.lost();
  }
}
