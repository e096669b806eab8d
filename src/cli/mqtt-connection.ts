// The MQTT client of `pub` and `sub` on a connection: our own protocol machine on the network port.
//
// One connector is one client. Its `ClientSession` outlives its connections, so that a subscriber
// that comes back is not told a QoS 2 message twice. What cannot be sent yet waits in order: for the
// broker's Receive Maximum at QoS 1 and 2, for the network at QoS 0. Whether to come back after a
// loss is the command's to decide, by the kind of the error.

import {
  type ByteConnection,
  type Clock,
  type CodedError,
  type ConnectionHandlers,
  formatAddress,
  isCodedError,
  type Network,
  nodeNetwork,
  systemClock,
} from "../base/index.ts";
import {
  ChunkPool,
  ClientConnection,
  type ClientEnd,
  ClientSession,
  type ConnackPacket,
  type ConnectPacket,
  clientSettingsDefault,
  OutputBuffer,
  type PublishPacket,
  type ReasonCode,
  reason,
  reasonName,
  type SubackPacket,
} from "../mqtt/index.ts";
import { cliErrors } from "./errors.ts";
import type {
  ClientOptions,
  ConnectClient,
  IncomingMessage,
  MqttClient,
  OnMessage,
  OutgoingMessage,
  Qos,
} from "./mqtt-client.ts";
import { endError, reasonOf } from "./mqtt-ends.ts";

export type ConnectorComponents = { readonly network: Network; readonly clock: Clock };

/** The client of this process. */
export const connectSocket: ConnectClient = createConnector({
  network: nodeNetwork,
  clock: systemClock,
});

export function createConnector(components: ConnectorComponents): ConnectClient {
  const session = new ClientSession();
  return (options, onMessage) => {
    const client = new SocketClient(components, session, { options, onMessage });
    return client.open();
  };
}

/** From the call to CONNACK: a broker that takes the connection and says nothing is none. */
const connectWaitMs = 30_000;
/** How long the broker may take to close after our DISCONNECT. */
const endWaitMs = 2000;
/** Bytes with the network above which the next QoS 0 message waits. */
const unsentBytesMax = 1024 * 1024;
const tickMs = 1000;
const failureMin = 0x80;

type Task = { readonly message: OutgoingMessage } & Settle;
type Settle = {
  readonly resolve: () => void;
  readonly reject: (error: CodedError) => void;
};

class SocketClient implements MqttClient {
  readonly closed: Promise<void>;
  readonly #clock: Clock;
  readonly #network: Network;
  readonly #session: ClientSession;
  readonly #options: ClientOptions;
  readonly #onMessage: OnMessage;
  readonly #address: string;
  readonly #output: OutputBuffer;
  readonly #waiting: Task[] = [];
  readonly #underWay = new Map<number, Task>();
  readonly #requests = new Map<number, { readonly filters: readonly string[] } & Settle>();
  #protocol: ClientConnection | undefined;
  #connection: ByteConnection | undefined;
  #connack: ConnackPacket | undefined;
  #lost: CodedError | undefined;
  #isEnding = false;
  #lose: (error: CodedError) => void = () => undefined;
  #accepted: () => void = () => undefined;
  #whenClosed: () => void = () => undefined;

  constructor(
    components: ConnectorComponents,
    session: ClientSession,
    parts: { readonly options: ClientOptions; readonly onMessage: OnMessage },
  ) {
    this.#clock = components.clock;
    this.#network = components.network;
    this.#session = session;
    this.#options = parts.options;
    this.#onMessage = parts.onMessage;
    this.#address = formatAddress({ host: parts.options.host, port: parts.options.port });
    this.#output = new OutputBuffer(new ChunkPool(0), () => {
      this.#clock.soon(() => this.#flush());
    });
    this.closed = new Promise((_resolve, reject) => {
      this.#lose = reject;
    });
    // Whoever waits for it hears of it; nobody has to wait.
    this.closed.catch(() => undefined);
  }

  get isSessionPresent(): boolean {
    return this.#connack?.sessionPresent === true;
  }

  /** Resolves with CONNACK. @throws CLI_CONNECT_FAILED, CLI_CONNECT_REFUSED. */
  async open(): Promise<MqttClient> {
    const accepted = new Promise<void>((resolve) => {
      this.#accepted = resolve;
    });
    const cancel = this.#clock.schedule(connectWaitMs, () => {
      const seconds = connectWaitMs / 1000;
      this.#end(this.#connectFailed(`no answer within ${seconds} s`));
    });
    try {
      await Promise.race([this.#dial(), this.closed]);
      await Promise.race([accepted, this.closed]);
      return this;
    } finally {
      cancel();
    }
  }

  async publish(message: OutgoingMessage): Promise<void> {
    const refusal = this.#refusalOf(message);
    if (refusal !== undefined) throw refusal;
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ message, resolve, reject });
      this.#sendWaiting();
    });
  }

  async subscribe(filters: readonly string[], qos: Qos): Promise<void> {
    const protocol = this.#protocol;
    if (protocol === undefined || this.#lost !== undefined) throw this.#lost ?? this.#goneError();
    const options = { qos, noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
    await new Promise<void>((resolve, reject) => {
      const packetId = protocol.subscribe(filters.map((filter) => ({ filter, options })));
      this.#requests.set(packetId, { filters, resolve, reject });
    });
  }

  async end(): Promise<void> {
    if (this.#isEnding || this.#lost !== undefined) return;
    this.#isEnding = true;
    const gone = new Promise<void>((resolve) => {
      this.#whenClosed = resolve;
    });
    this.#protocol?.disconnect();
    this.#flush();
    this.#connection?.end();
    const cancel = this.#clock.schedule(endWaitMs, () => this.#connection?.destroy());
    await gone;
    cancel();
  }

  // -------------------------------------------------------------- the connection

  async #dial(): Promise<void> {
    const { host, port } = this.#options;
    try {
      this.#connection = await this.#network.connect({ host, port }, () => this.#handlers());
    } catch (error) {
      if (!isCodedError(error)) throw error;
      throw this.#connectFailed(reasonOf(error), error);
    }
    if (this.#lost !== undefined) {
      this.#connection.destroy();
      return;
    }
    this.#protocol = new ClientConnection(
      {
        settings: clientSettingsDefault,
        session: this.#session,
        events: {
          onConnack: (packet) => this.#onConnack(packet),
          onPublish: (packet) => this.#onPublish(packet),
          onPublished: (packetId, reasonCode) => this.#onPublished(packetId, reasonCode),
          onSuback: (packet) => this.#onSuback(packet),
          onUnsuback: () => undefined,
          onAuth: () => undefined,
          onEnd: (end) => this.#onEnd(end),
        },
        output: this.#output,
      },
      connectPacketOf(this.#options),
      this.#clock.elapsedMs(),
    );
    this.#tick();
  }

  #handlers(): ConnectionHandlers {
    return {
      onData: (bytes) => {
        this.#protocol?.receive(bytes, this.#clock.elapsedMs());
      },
      onDrain: () => this.#sendWaiting(),
      onClose: (error) => {
        this.#whenClosed();
        if (this.#isEnding) return;
        this.#protocol?.transportClosed();
        const why = error === undefined ? "closed by the other side" : reasonOf(error);
        this.#end(this.#connack === undefined ? this.#connectFailed(why) : this.#lostError(why));
      },
    };
  }

  #tick(): void {
    this.#clock.schedule(tickMs, () => {
      if (this.#lost !== undefined || this.#isEnding) return;
      this.#protocol?.tick(this.#clock.elapsedMs());
      this.#tick();
    });
  }

  #flush(): void {
    this.#output.drain((bytes) => this.#connection?.write(bytes));
  }

  /** Once: everything that waits is told why. */
  #end(error: CodedError): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    const owed = [
      ...this.#waiting.splice(0),
      ...this.#underWay.values(),
      ...this.#requests.values(),
    ];
    this.#underWay.clear();
    this.#requests.clear();
    for (const task of owed) task.reject(error);
    this.#flush();
    this.#connection?.end();
    this.#lose(error);
  }

  // -------------------------------------------------------------- what the broker says

  #onConnack(packet: ConnackPacket): void {
    this.#connack = packet;
    this.#accepted();
  }

  #onPublish(packet: PublishPacket): void {
    if (this.#onMessage(messageOf(packet))) this.#protocol?.acknowledge(packet);
  }

  #onPublished(packetId: number, reasonCode: ReasonCode): void {
    const task = this.#underWay.get(packetId);
    this.#underWay.delete(packetId);
    if (task !== undefined) {
      if (reasonCode < failureMin) task.resolve();
      else task.reject(refusedError(task.message.topic, reasonName(reasonCode)));
    }
    this.#sendWaiting();
  }

  #onSuback({ packetId, reasonCodes }: SubackPacket): void {
    const request = this.#requests.get(packetId);
    if (request === undefined) return;
    this.#requests.delete(packetId);
    const at = reasonCodes.findIndex((code) => code >= failureMin);
    if (at < 0) return request.resolve();
    const text = reasonName(reasonCodes[at] ?? reason.unspecifiedError);
    request.reject(cliErrors.subscribeRefused({ filter: request.filters[at], reason: text }));
  }

  #onEnd(end: ClientEnd): void {
    // The network says more about its own end.
    if (this.#isEnding || end.cause === "transport") return;
    this.#end(endError(end, this.#options, this.#address));
  }

  // -------------------------------------------------------------- sending

  #sendWaiting(): void {
    const protocol = this.#protocol;
    if (protocol === undefined || this.#lost !== undefined || this.#isEnding) return;
    for (let task = this.#waiting[0]; task !== undefined; task = this.#waiting[0]) {
      const { message } = task;
      if (message.qos > 0 ? !protocol.hasRoom : this.#unsentBytes > unsentBytesMax) return;
      this.#waiting.shift();
      this.#send(protocol, task);
    }
  }

  get #unsentBytes(): number {
    return this.#output.pendingBytes + (this.#connection?.unsentBytes ?? 0);
  }

  #send(protocol: ClientConnection, task: Task): void {
    const { topic, payload, qos, isRetained } = task.message;
    const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
    try {
      const packetId = protocol.publish({ topic, payload: bytes, qos, retain: isRetained });
      if (qos > 0) this.#underWay.set(packetId, task);
      else task.resolve();
    } catch (error) {
      if (!isCodedError(error)) throw error;
      task.reject(refusedError(topic, error.message));
    }
    // Large outputs leave at once, so that what waits with the network is seen in time.
    if (this.#output.pendingBytes > unsentBytesMax) this.#flush();
  }

  /** What the broker said in CONNACK that it does not take, or that it is gone. */
  #refusalOf({ topic, qos, isRetained }: OutgoingMessage): CodedError | undefined {
    if (this.#lost !== undefined || this.#isEnding) return this.#lost ?? this.#goneError();
    const { maximumQos = 2, retainAvailable = true } = this.#connack?.properties ?? {};
    if (qos > maximumQos) return refusedError(topic, `the broker takes at most QoS ${maximumQos}`);
    if (isRetained && !retainAvailable) {
      return refusedError(topic, "the broker retains no messages");
    }
    return undefined;
  }

  // -------------------------------------------------------------- errors

  #connectFailed(why: string, cause?: Error): CodedError {
    return cliErrors.connectFailed({ address: this.#address, reason: why }, cause);
  }

  #lostError(why: string): CodedError {
    return cliErrors.connectionLost({ address: this.#address, reason: why });
  }

  #goneError(): CodedError {
    return this.#lostError("ended by this client");
  }
}

function connectPacketOf(options: ClientOptions): ConnectPacket {
  const { version, clientId, isClean, keepAliveS, user, password, sessionExpiryS } = options;
  return {
    type: "connect",
    level: version,
    bridge: false,
    clientId,
    cleanStart: isClean,
    keepAliveS,
    ...(user === undefined ? {} : { userName: user }),
    ...(password === undefined ? {} : { password: Buffer.from(password) }),
    properties: sessionExpiryS === undefined ? {} : { sessionExpiryS },
  };
}

function messageOf({
  topic,
  payload,
  qos,
  retain,
  dup,
  properties,
}: PublishPacket): IncomingMessage {
  return {
    topic,
    payload,
    qos,
    isRetained: retain,
    isDuplicate: dup,
    userProperties: properties.userProperties ?? [],
    contentType: properties.contentType,
    responseTopic: properties.responseTopic,
    messageExpiryS: properties.messageExpiryS,
  };
}

function refusedError(topic: string, why: string): CodedError {
  return cliErrors.publishRefused({ topic, reason: why });
}
