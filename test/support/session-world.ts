// A broker without sockets for tests of the session room: a fake store, a fan-out, and clients that
// write down what they get as lines. Everything runs on one simulated clock.
//
//   const world = await World.start();
//   const s = world.client("s");
//   await s.connect({ expiryS: 3600 });
//   await s.subscribe("a/+", { qos: 1 });
//   await world.publish("p", "a/b", "hello", { qos: 1 });
//   expect(s.take()).toEqual(["publish 1 q1 a/b hello"]);

import { type Clock, type Logger, SimClock, silentLogger } from "../../src/base/index.ts";
import {
  type ConnectRequest,
  createSessions,
  type Delivery,
  type LiveSubscriptions,
  type LiveTarget,
  type Qos,
  type Session,
  type SessionLink,
  type SessionRegistry,
  type SessionSettings,
  type SubscribeResult,
  type Subscription,
  sessionSettingsDefault,
  type Will,
  type WillPublisher,
} from "../../src/session/index.ts";
import type { AppendOutcome, Store, Ttv, WriterStamp } from "../../src/store/index.ts";
import { type FakeOptions, FakeStore, topicMatches } from "./fake-store.ts";
import { type Process, StoreMachine } from "./store-machine.ts";

export type PublishOptions = {
  readonly qos?: Qos;
  readonly retain?: boolean;
  readonly expiryS?: number;
  /** QoS 2 of a durable publisher: its packet id and claim. */
  readonly evidence?: { packetId: number; incarnation: number; ownerEpoch: number };
  readonly writer?: WriterStamp;
};

export type ConnectOptions = {
  readonly clean?: boolean;
  readonly expiryS?: number;
  readonly receiveMaximum?: number;
  readonly user?: string;
  readonly will?: Will;
  readonly version?: 4 | 5;
  /** Leaves CONNACK unsent: `open` is not called. */
  readonly hold?: boolean;
};

export class FanOut implements LiveSubscriptions {
  readonly targets = new Map<LiveTarget, Map<string, Subscription>>();

  set(target: LiveTarget, subscription: Subscription): void {
    const filters = this.targets.get(target) ?? new Map<string, Subscription>();
    filters.set(subscription.filter, subscription);
    this.targets.set(target, filters);
  }

  remove(target: LiveTarget, filter: string): void {
    this.targets.get(target)?.delete(filter);
  }

  removeAll(target: LiveTarget): void {
    this.targets.delete(target);
  }

  deliver(message: Ttv, stored: boolean): void {
    for (const [target, filters] of [...this.targets]) {
      const hits = [...filters.values()].filter((s) => topicMatches(s.filter, message.topic));
      if (hits.length > 0) target.deliver(message, hits, stored);
    }
  }
}

export type WorldOptions = {
  readonly store?: FakeOptions;
  readonly settings?: Partial<SessionSettings>;
  /** Seed of a simulated machine that runs the real store instead of the fake one. */
  readonly machineSeed?: number;
};

/** A store and what happens to it when its process ends. */
type Backend = {
  readonly clock: SimClock;
  /** Opens the store; `start` is called once sessions have loaded. */
  open(): Promise<{ readonly store: Store; readonly clock: Clock }>;
  crash(flushed: number): void;
  /** After the sessions were closed. */
  stop(): Promise<void>;
};

function fakeBackend(options: FakeOptions | undefined): Backend {
  const clock = new SimClock();
  let current: FakeStore | undefined;
  let next = new FakeStore(clock, options);
  const crash = (flushed: number): void => {
    next = current!.crash(flushed);
    clock.clear();
  };
  return {
    clock,
    open: async () => {
      current = next;
      return { store: current, clock };
    },
    crash,
    stop: async () => crash(0),
  };
}

function machineBackend(seed: number): Backend {
  const machine = new StoreMachine({ seed });
  let process: Process | undefined;
  return {
    clock: machine.clock,
    open: async () => {
      process = await machine.open();
      return process;
    },
    crash: (flushed) => (flushed % 2 === 0 ? machine.crash() : machine.kill()),
    stop: () => machine.stop(process!),
  };
}

export class World implements WillPublisher {
  readonly clock: SimClock;
  readonly settings: SessionSettings;
  anyStore!: Store;
  sessions!: SessionRegistry;
  fanOut = new FanOut();
  readonly clients: TestClient[] = [];
  readonly wills: string[] = [];
  readonly logged: string[] = [];
  /** Set: publishing a will fails with it. */
  failWills: Error | undefined;
  holdWills: Promise<void> | undefined;
  readonly #backend: Backend;

  private constructor(options: WorldOptions) {
    const { machineSeed } = options;
    this.#backend =
      machineSeed === undefined ? fakeBackend(options.store) : machineBackend(machineSeed);
    this.clock = this.#backend.clock;
    this.settings = { ...sessionSettingsDefault, ...options.settings };
  }

  static async start(options: WorldOptions = {}): Promise<World> {
    const world = new World(options);
    await world.#boot();
    return world;
  }

  get store(): FakeStore {
    return this.anyStore as FakeStore;
  }

  client(clientId: string): TestClient {
    const client = new TestClient(this, clientId);
    this.clients.push(client);
    return client;
  }

  advance(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }

  /** The publish path in small: retained first, then the log, then fan-out and ack. */
  publish(
    publisher: string,
    topic: string,
    payload: string,
    options: PublishOptions = {},
  ): Promise<AppendOutcome | undefined> {
    return this.clock.complete(this.publishLater(publisher, topic, payload, options));
  }

  /** As `publish`, without turning the clock. */
  publishLater(
    publisher: string,
    topic: string,
    payload: string,
    options: PublishOptions = {},
  ): Promise<AppendOutcome | undefined> {
    const { qos = 1, retain = false, expiryS, evidence, writer } = options;
    const expiryUs = expiryS === undefined ? 0 : this.clock.wallUs() + expiryS * 1_000_000;
    const frame = Buffer.from(payload);
    const shape = { topic, publisher, form: "raw" as const, qos, retain, expiryUs };
    const message: Ttv = { ...shape, timeUs: 0, expiryOffset: 0, frame };
    const { sessions, anyStore: store, fanOut } = this;
    const kept = new Promise<void>((resolve, reject) => {
      if (!retain) resolve();
      else {
        sessions.retained.put(message, payload === "", (error) =>
          error === undefined ? resolve() : reject(error),
        );
      }
    });
    const keep = qos > 0 && store.interest.wants(topic);
    const sent = new Promise<AppendOutcome | undefined>((resolve, reject) => {
      if (!keep && evidence === undefined && writer === undefined) {
        fanOut.deliver(message, false);
        resolve(undefined);
        return;
      }
      const stamp = writer === undefined ? {} : { writer };
      const request = { ...shape, expiryOffset: 0, frame, keep, evidence, ...stamp };
      store.append(request, (error, outcome) => {
        if (outcome?.kind === "stored") {
          fanOut.deliver({ ...message, timeUs: outcome.timeUs }, keep);
        }
        if (error === undefined) resolve(outcome);
        else reject(error);
      });
    });
    return kept.then(() => sent);
  }

  async publishWill(
    will: Will,
    clientId: string,
    user: string | undefined,
    writer: WriterStamp | undefined,
  ): Promise<void> {
    await this.holdWills;
    if (this.failWills !== undefined) throw this.failWills;
    if (writer !== undefined && this.anyStore.writerResult(writer, clientId) !== undefined) return;
    this.wills.push(`${clientId} ${will.topic} ${will.frame.toString()}${user ? ` ${user}` : ""}`);
    await this.publishLater(clientId, will.topic, will.frame.toString(), {
      qos: will.qos,
      retain: will.retain,
      ...(writer !== undefined && { writer }),
    });
  }

  /** kill -9; `flushed`: items of the last flush that were on the disk nevertheless. */
  async crash(flushed = 0): Promise<void> {
    this.#backend.crash(flushed);
    await this.#reboot();
  }

  /** SIGTERM and start again. */
  async restart(): Promise<void> {
    for (const client of this.clients) client.cutByBroker("shutdown");
    await this.clock.complete(this.sessions.close());
    await this.#backend.stop();
    await this.#reboot();
  }

  async #reboot(): Promise<void> {
    for (const client of this.clients) client.forget();
    await this.clock.advance(5);
    await this.#boot();
  }

  async #boot(): Promise<void> {
    const { store, clock } = await this.clock.complete(this.#backend.open());
    this.anyStore = store;
    this.fanOut = new FanOut();
    const logger: Logger = {
      ...silentLogger,
      error: (event) => this.logged.push(event),
    };
    const components = { store, clock, logger, live: this.fanOut, wills: this };
    this.sessions = createSessions(this.settings, components);
    await this.clock.complete(this.sessions.load());
    await this.clock.complete(store.start());
    this.sessions.start();
  }
}

/** One device: its link, what it got, and what it answers. */
export class TestClient {
  readonly world: Pick<World, "clock" | "sessions" | "advance">;
  readonly clientId: string;
  session: Session | undefined;
  sessionPresent = false;
  /** Answers every PUBLISH and PUBREL at once. */
  autoAck = false;
  maxBytes = Number.POSITIVE_INFINITY;
  /** The outbound buffer takes this many packets until `drain`. */
  room = Number.POSITIVE_INFINITY;
  /** Called with every PUBLISH before the automatic answer. */
  onPublish: (message: Ttv, delivery: Delivery) => void = () => undefined;
  onPubrel: (packetId: number, reasonCode: number) => void = () => undefined;
  #lines: string[] = [];
  #live = 0;

  constructor(world: TestClient["world"], clientId: string) {
    this.world = world;
    this.clientId = clientId;
  }

  /** What was received since the last call. */
  take(): string[] {
    return this.#lines.splice(0);
  }

  /** The same, without taking it. */
  peek(): readonly string[] {
    return this.#lines;
  }

  async connect(options: ConnectOptions = {}): Promise<this> {
    await this.world.clock.complete(this.connectLater(options));
    return this;
  }

  async connectLater(options: ConnectOptions = {}): Promise<void> {
    const { clean = false, expiryS = 3600, user, will, version = 5 } = options;
    const request: ConnectRequest = {
      clientId: this.clientId,
      user,
      cleanStart: clean,
      expiryS,
      protocol: version,
      will,
    };
    const connection = ++this.#live;
    const link = this.#createLink(connection, version, options.receiveMaximum ?? 65_535);
    const outcome = await this.world.sessions.connect(request, link);
    this.session = outcome.session;
    this.sessionPresent = outcome.sessionPresent;
    if (!options.hold) outcome.session.open();
  }

  async subscribe(filter: string, options: Partial<Subscription> = {}): Promise<SubscribeResult> {
    const results = await this.world.clock.complete(this.subscribeLater(filter, options));
    return results[0]!;
  }

  async subscribeLater(
    filter: string,
    options: Partial<Subscription> = {},
  ): Promise<readonly SubscribeResult[]> {
    const session = this.session!;
    const results = await session.subscribe([subscription(filter, options)]);
    this.#lines.push(`suback ${results.map((result) => result.reasonCode).join(",")}`);
    session.sendRetained(results.filter((result) => result.reasonCode < 0x80));
    return results;
  }

  async unsubscribe(filter: string): Promise<boolean> {
    const existed = await this.world.clock.complete(this.session!.unsubscribe([filter]));
    return existed[0]!;
  }

  puback(packetId: number): number | undefined {
    return this.session!.puback(packetId, 0);
  }

  pubrec(packetId: number, reasonCode = 0): number | undefined {
    return this.session!.pubrec(packetId, reasonCode);
  }

  pubcomp(packetId: number): number | undefined {
    return this.session!.pubcomp(packetId, 0);
  }

  drain(room = Number.POSITIVE_INFINITY): void {
    this.room = room;
    this.session!.drained();
  }

  /** DISCONNECT. */
  disconnect(expiryS?: number): Promise<void> {
    return this.#end({ kind: "disconnect", expiryS });
  }

  /** The connection breaks. */
  drop(expiryS?: number): Promise<void> {
    return this.#end({ kind: "lost", expiryS });
  }

  get connected(): boolean {
    return this.session !== undefined;
  }

  cutByBroker(kind: "shutdown"): void {
    const { session } = this;
    this.session = undefined;
    this.#live++;
    session?.detach({ kind }).catch(() => undefined);
  }

  /** The broker is gone. */
  forget(): void {
    this.session = undefined;
    this.#live++;
  }

  async #end(cause: Parameters<Session["detach"]>[0]): Promise<void> {
    const session = this.session!;
    this.session = undefined;
    this.#live++;
    await this.world.clock.complete(session.detach(cause));
  }

  #createLink(connection: number, version: 4 | 5, receiveMaximum: number): SessionLink {
    const isLive = (): boolean => this.#live === connection;
    return {
      version,
      receiveMaximum,
      publish: (message, delivery) => {
        if (!isLive()) return "full";
        if (message.frame.length > this.maxBytes) return "too_large";
        if (this.room <= 0) return "full";
        this.room--;
        this.#lines.push(formatPublish(message, delivery));
        this.onPublish(message, delivery);
        if (this.autoAck && delivery.qos > 0) this.#answer(connection, delivery);
        return "sent";
      },
      fits: (message) => message.frame.length <= this.maxBytes,
      pubrel: (packetId, reasonCode) => {
        if (!isLive()) return;
        this.#lines.push(
          `pubrel ${packetId}${reasonCode === 0 ? "" : ` 0x${reasonCode.toString(16)}`}`,
        );
        this.onPubrel(packetId, reasonCode);
        if (this.autoAck) this.world.clock.soon(() => isLive() && this.pubcomp(packetId));
      },
      end: (reasonCode) => {
        if (!isLive()) return;
        this.#lines.push(`end 0x${reasonCode.toString(16)}`);
        this.forget();
      },
    };
  }

  #answer(connection: number, delivery: Delivery): void {
    const { packetId, qos } = delivery;
    this.world.clock.soon(() => {
      if (this.#live !== connection || this.session === undefined) return;
      if (qos === 1) this.puback(packetId);
      else this.pubrec(packetId);
    });
  }
}

export function subscription(filter: string, options: Partial<Subscription> = {}): Subscription {
  return {
    filter,
    qos: 1,
    noLocal: false,
    retainAsPublished: false,
    retainHandling: 0,
    identifier: 0,
    ...options,
  };
}

export function will(topic: string, payload: string, options: Partial<Will> = {}): Will {
  return {
    topic,
    qos: 1,
    retain: false,
    delayS: 0,
    version: 5,
    frame: Buffer.from(payload),
    messageExpiryS: undefined,
    expiryOffset: 0,
    ...options,
  };
}

function formatPublish(message: Ttv, delivery: Delivery): string {
  const parts = ["publish"];
  if (delivery.qos > 0) parts.push(String(delivery.packetId));
  parts.push(`q${delivery.qos}`);
  if (delivery.dup) parts.push("dup");
  if (delivery.retain) parts.push("retain");
  parts.push(message.topic, message.frame.toString());
  if (delivery.subscriptionIds.length > 0) parts.push(`[${delivery.subscriptionIds.join(",")}]`);
  return parts.join(" ");
}
