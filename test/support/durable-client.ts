// MQTT.js clients with durable sessions that tell the oracle what they send and receive. A client
// keeps its stores over all its connections, so it resends and drops repeats as the protocol asks
// of it, and it reconnects only when told.

import mqtt, { type MqttClient, Store } from "mqtt";
import { type DeliveryOracle, formatPayload, parsePayload } from "./oracle.ts";

export type DurableOptions = {
  readonly clientId: string;
  readonly oracle: DeliveryOracle;
  /** 4 for MQTT 3.1.1. */
  readonly level?: 4 | 5;
};

export type Subscription = { readonly filter: string; readonly qos: 0 | 1 | 2 };

const sessionExpirySeconds = 86_400;
const waitMs = 10_000;

export class DurableClient {
  readonly clientId: string;
  /** Counts connections that were accepted. */
  connection = 0;
  readonly #oracle: DeliveryOracle;
  readonly #level: 4 | 5;
  // MQTT.js makes new stores at a reconnect unless it is handed the old ones.
  readonly #stores = {
    incomingStore: new Store({ clean: false }),
    outgoingStore: new Store({ clean: false }),
  };
  #client: MqttClient | undefined;
  // MQTT.js hands a QoS 2 message on at its PUBREL; order is about the PUBLISH.
  readonly #arrivals = new Map<string, number>();
  #arrivalCount = 0;
  /** DISCONNECT is on its way: nothing can be acknowledged on this connection any more. */
  #isLeaving = false;

  constructor(options: DurableOptions) {
    this.clientId = options.clientId;
    this.#oracle = options.oracle;
    this.#level = options.level ?? 4;
  }

  get isConnected(): boolean {
    return this.#client?.connected === true;
  }

  /** Connects, or connects again with the state of before. Resolves with the session present flag. */
  async connect(port: number): Promise<boolean> {
    const first = this.#client === undefined;
    const client = this.#client ?? this.#create(port);
    client.options.port = port;
    const accepted = acceptance(client, this.clientId);
    if (first) client.connect();
    else client.reconnect(this.#stores);
    const connack = await accepted;
    return connack.sessionPresent;
  }

  /** SUBSCRIBE; the oracle owes this session matching messages from now on. */
  async subscribe(...subscriptions: Subscription[]): Promise<void> {
    const wanted = Object.fromEntries(subscriptions.map(({ filter, qos }) => [filter, { qos }]));
    await this.#connected().subscribeAsync(wanted);
  }

  /** Publishes the next number of a topic. Resolves at the ack, over reconnects if need be. */
  async publish(topic: string, qos: 0 | 1 | 2, sizeBytes = 0): Promise<void> {
    const message = this.#oracle.nextMessage(this.clientId, topic);
    const payload = formatPayload(message, sizeBytes);
    await this.#connected().publishAsync(topic, payload, { qos }).catch(ignoreReleasedBefore);
    if (qos > 0) this.#oracle.acked(message);
  }

  /** DISCONNECT; the session stays. */
  async disconnect(): Promise<void> {
    if (!this.isConnected) return;
    const client = this.#connected();
    const closed = once(client, "close", `closing ${this.clientId}`);
    this.#isLeaving = true;
    client.stream.end(Buffer.from([0xe0, 0]));
    await closed;
  }

  /** Drops the link without a word. */
  async drop(): Promise<void> {
    if (!this.isConnected) return;
    const client = this.#connected();
    const closed = once(client, "close", `dropping ${this.clientId}`);
    client.stream.destroy();
    await closed;
  }

  /** Resolves when the link is gone, whoever ended it. */
  async waitClosed(): Promise<void> {
    if (!this.isConnected) return;
    await once(this.#connected(), "close", `the end of ${this.clientId}`);
  }

  /** Frees the client; unacked publishes are given up. */
  async end(): Promise<void> {
    await this.#client?.endAsync(true);
  }

  #connected(): MqttClient {
    if (this.#client === undefined) throw new Error(`${this.clientId} was never connected`);
    return this.#client;
  }

  #create(port: number): MqttClient {
    const client = mqtt.connect({
      host: "127.0.0.1",
      port,
      clientId: this.clientId,
      protocolVersion: this.#level,
      clean: false,
      keepalive: 0,
      reconnectPeriod: 0,
      resubscribe: false,
      manualConnect: true,
      ...this.#stores,
      ...(this.#level === 5 && {
        properties: { sessionExpiryInterval: sessionExpirySeconds, receiveMaximum: 100 },
      }),
    });
    this.#client = client;
    // Errors of one connection end it; who waits for something learns it there.
    client.on("error", () => undefined);
    client.on("connect", () => {
      this.connection++;
      this.#isLeaving = false;
    });
    client.on("packetsend", (packet) => {
      if (packet.cmd !== "publish") return;
      const message = parsePayload(packet.payload);
      if (message !== undefined) this.#oracle.sent(message, packet.qos);
    });
    client.on("packetreceive", (packet) => {
      if (packet.cmd !== "publish") return;
      const name = packet.payload.toString();
      this.#arrivalCount++;
      if (!this.#arrivals.has(name)) this.#arrivals.set(name, this.#arrivalCount);
    });
    client.on("message", (topic, payload, packet) => {
      const message = parsePayload(payload);
      if (message === undefined || message.topic !== topic) {
        this.#oracle.stranger(this.clientId, `a foreign payload on ${topic}`);
        return;
      }
      const { qos, dup, messageId: packetId } = packet;
      // It will come again: as far as the broker can know, it never came.
      if (qos === 1 && this.#isLeaving) return;
      const { clientId: session, connection } = this;
      const atNs = process.hrtime.bigint();
      const arrival = this.#arrivals.get(payload.toString()) ?? 0;
      const how = { session, qos, dup, packetId, connection, atNs, arrival };
      this.#oracle.received({ ...message, ...how });
    });
    return client;
  }
}

/**
 * PUBCOMP with 0x92 answers a PUBREL that is sent again: the first was done and its answer was lost.
 * The message was the broker's with PUBREC.
 */
function ignoreReleasedBefore(error: unknown): void {
  if ((error as { code?: number }).code !== 0x92) throw error;
}

/** The CONNACK of the next connection; rejects when there is an error or an end before it. */
function acceptance(client: MqttClient, clientId: string): Promise<{ sessionPresent: boolean }> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      client.off("connect", accept);
      client.off("error", fail);
      client.off("close", close);
      settle();
    };
    const accept = (connack: { sessionPresent: boolean }) => end(() => resolve(connack));
    const fail = (error: Error) => end(() => reject(error));
    const close = () => fail(new Error(`${clientId}: closed before CONNACK`));
    const late = () => fail(new Error(`${clientId}: no CONNACK in ${waitMs} ms`));
    const timer = setTimeout(late, waitMs);
    client.once("connect", accept);
    client.once("error", fail);
    client.once("close", close);
  });
}

function once(client: MqttClient, event: "close", what: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what}: not in ${waitMs} ms`)), waitMs);
    client.once(event, () => {
      clearTimeout(timer);
      resolve(undefined);
    });
  });
}
