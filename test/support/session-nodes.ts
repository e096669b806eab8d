// Several nodes with sessions on one fake store, for the rules of claims and client ids between nodes:
// what replicas and leaders do is simulated elsewhere (mqtt-cluster.ts). A node that is cut off reads
// what was there before, and its writes wait; their fate becomes unknown, as that of the store's.
//
//   const nodes = await SessionNodesWorld.start(2);
//   const one = nodes.node(1).client("s");

import { type CodedError, type SimClock, silentLogger } from "../../src/base/index.ts";
import { Across } from "../../src/session/across/across.ts";
import {
  createSessions,
  type NodeWordHandler,
  type SessionNodes,
  type SessionRegistry,
  type SessionSettings,
  sessionSettingsDefault,
  type Will,
} from "../../src/session/index.ts";
import type { MapGuard, MapShard, MapWrite, Store, WriterStamp } from "../../src/store/index.ts";
import {
  createFakeData,
  type FakeData,
  type FakeMapShard,
  FakeStore,
  storeError,
} from "./fake-store.ts";
import { FanOut, TestClient } from "./session-world.ts";

const wordMs = 1;
/** As long as the store of a cluster tries. */
const fateMs = 15_000;

type Done = Parameters<MapShard["write"]>[2];

const coded = (code: string): CodedError => storeError(code, "retry");
const unreached = (): CodedError => coded("CLUSTER_PEER_UNREACHED");

export class SessionNodesWorld {
  readonly clock: SimClock;
  readonly settings: SessionSettings;
  readonly store: FakeStore;
  readonly nodes: SessionNode[] = [];
  /** What was published as wills, by whichever node. */
  readonly wills: string[] = [];
  leader = 1;
  /** Appends of wills under these stamps have happened. */
  readonly stamped = new Set<string>();

  constructor(clock: SimClock, settings: Partial<SessionSettings> = {}) {
    this.clock = clock;
    this.settings = { ...sessionSettingsDefault, ...settings };
    this.store = new FakeStore(clock, { stateShards: 1 });
  }

  static async start(
    clock: SimClock,
    count: number,
    settings: Partial<SessionSettings> = {},
  ): Promise<SessionNodesWorld> {
    const world = new SessionNodesWorld(clock, settings);
    for (let number = 1; number <= count; number++) {
      world.nodes.push(new SessionNode(world, number));
    }
    for (const node of world.nodes) await node.boot();
    return world;
  }

  node(number: number): SessionNode {
    return this.nodes[number - 1] as SessionNode;
  }

  /** Rows of one client, by the last part of their keys. */
  async row(key: string) {
    return this.clock.complete((this.store.stateShards[0] as FakeMapShard).get(key));
  }

  keys(): string[] {
    return this.store.stateShards.flatMap((shard) => shard.keys());
  }
}

export class SessionNode implements SessionNodes {
  readonly world: SessionNodesWorld;
  readonly node: number;
  sessions!: SessionRegistry;
  isAlive = false;
  isCut = false;
  /** The fate of its next writes stays unknown to it: whether they happen. */
  fates: Array<"happens" | "lost"> = [];
  readonly logged: string[] = [];
  /** What others ask it is not answered. */
  isMute = false;
  /** How long a write of these keys is on its way. */
  delayMsOf: (keys: readonly string[]) => number = () => 0;
  /** Its replicas of the logs have got so far, until a barrier brings them up to now. */
  logsUs: number | undefined;
  #boots = 0;
  #handlers = new Map<string, NodeWordHandler>();
  #listeners = new Set<(node: number, isReached: boolean) => void>();
  #held: Array<() => void> = [];
  #unapplied: Array<() => void> = [];
  #before: FakeStore | undefined;

  constructor(world: SessionNodesWorld, node: number) {
    this.world = world;
    this.node = node;
  }

  get start(): string {
    return `start ${this.#boots} of ${this.node}`;
  }

  get clock(): SimClock {
    return this.world.clock;
  }

  async boot(): Promise<void> {
    const { clock } = this.world;
    this.#boots++;
    this.#handlers = new Map();
    this.#listeners = new Set();
    this.isAlive = true;
    const life = this.#boots;
    const isNow = (): boolean => this.isAlive && life === this.#boots;
    const fanOut = new FanOut();
    this.sessions = createSessions(this.world.settings, {
      store: this.#face(isNow),
      clock: processClock(clock, isNow),
      logger: {
        ...silentLogger,
        error: (event) => this.logged.push(event),
      },
      live: fanOut,
      wills: { publishWill: (...will) => this.#publishWill(isNow, ...will) },
      nodes: this.#port(),
      createAcross: (of) => new Across(of),
    });
    await clock.complete(this.sessions.load());
    this.sessions.start();
    this.#tellOthers();
  }

  kill(): void {
    this.isAlive = false;
    this.#tellOthers();
  }

  cut(): void {
    const { store, clock } = this.world;
    this.#before = new FakeStore(clock, store.options, copyOf(store.data));
    this.isCut = true;
    this.#tellOthers();
  }

  heal(): void {
    this.isCut = false;
    this.#before = undefined;
    for (const apply of this.#unapplied.splice(0)) apply();
    for (const write of this.#held.splice(0)) write();
    this.#tellOthers();
  }

  advance(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }

  /** At QoS 1, as somebody who is connected here. */
  async publish(topic: string, text: string): Promise<void> {
    const { store, clock } = this.world;
    const shape = { topic, publisher: "p", form: "raw" as const, qos: 1 as const, retain: false };
    const rest = { expiryUs: 0, expiryOffset: 0, keep: true, evidence: undefined };
    const frame = Buffer.from(text);
    const stored = new Promise<void>((resolve) => {
      store.append({ ...shape, ...rest, frame }, () => resolve());
    });
    await clock.complete(stored);
    await clock.advance(10);
  }

  client(clientId: string): TestClient {
    return new TestClient(this, clientId);
  }

  // ------------------------------------------------------------ between nodes

  #reaches(other: SessionNode): boolean {
    return other !== this && this.isAlive && other.isAlive && !this.isCut && !other.isCut;
  }

  peers(): readonly number[] {
    return this.world.nodes.filter((other) => this.#reaches(other)).map(({ node }) => node);
  }

  startOf(node: number): string | undefined {
    const other = this.world.node(node);
    return this.#reaches(other) ? other.start : undefined;
  }

  onPeersChanged(listener: (node: number, isReached: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  ask(node: number, kind: string, bytes: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    const other = this.world.node(node);
    return new Promise((resolve, reject) => {
      if (!this.#reaches(other)) return reject(unreached());
      this.clock.schedule(timeoutMs, () => reject(coded("CLUSTER_PEER_SILENT")));
      this.clock.schedule(wordMs, () => {
        if (!this.#reaches(other)) return reject(unreached());
        if (other.isMute) return;
        Promise.resolve(other.#handlers.get(kind)?.(this.node, bytes)).then(
          (answer) =>
            this.clock.schedule(wordMs, () => {
              if (this.#reaches(other)) resolve(answer as Uint8Array);
              else reject(unreached());
            }),
          () => reject(coded("CLUSTER_PEER_FAILED")),
        );
      });
    });
  }

  handle(kind: string, handler: NodeWordHandler): void {
    this.#handlers.set(kind, handler);
  }

  leads(): boolean {
    return this.world.leader === this.node && !this.isCut;
  }

  /** As a process has it: its start does not change. */
  #port(): SessionNodes {
    const { node, start } = this;
    return {
      ...{ node, start },
      peers: () => this.peers(),
      startOf: (other) => this.startOf(other),
      onPeersChanged: (listener) => this.onPeersChanged(listener),
      ask: (other, kind, bytes, timeoutMs) => this.ask(other, kind, bytes, timeoutMs),
      handle: (kind, handler) => this.handle(kind, handler),
      leads: () => this.leads(),
    };
  }

  #tellOthers(): void {
    for (const other of this.world.nodes) {
      if (other === this) continue;
      const isReached = this.#reaches(other);
      for (const listener of other.#listeners) listener(this.node, isReached);
      for (const listener of this.#listeners) listener(other.node, isReached);
    }
  }

  // ------------------------------------------------------------ the store

  get #logsUs(): number {
    return this.logsUs ?? Number.MAX_SAFE_INTEGER;
  }

  #face(isNow: () => boolean): Store {
    const { store } = this.world;
    const shards = store.stateShards.map((shard, at) => this.#shard(shard, at, isNow));
    const own: Partial<Store> = {
      stateShards: shards,
      state: () => shards[0] as MapShard,
      isShared: true,
      tail: () => {
        const tail = store.tail();
        for (const [shard, timeUs] of tail) tail.set(shard, Math.min(timeUs, this.#logsUs));
        return tail;
      },
      fetch: async (refs) => {
        const bodies = await store.fetch(refs);
        return bodies.map((body) => (body && body.timeUs <= this.#logsUs ? body : undefined));
      },
      barrier: () => {
        this.logsUs = undefined;
        return new Promise((resolve) => this.clock.schedule(wordMs, resolve));
      },
    };
    return new Proxy(store, {
      get: (target, name) => {
        if (name in own) return own[name as keyof Store];
        const value = Reflect.get(target, name) as unknown;
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  #shard(shard: FakeMapShard, at: number, isNow: () => boolean): MapShard {
    const read = (): MapShard => this.#before?.stateShards[at] ?? shard;
    return {
      number: shard.number,
      get appliedUs() {
        return read().appliedUs;
      },
      get: (key) => read().get(key),
      list: (prefix, options) => read().list(prefix, options),
      match: (prefix, filter, options) => read().match(prefix, filter, options),
      transact: (body) => shard.transact(body),
      watch: (prefix, watcher) =>
        shard.watch(prefix, {
          applied: (key, value) => this.#apply(() => isNow() && watcher.applied(key, value)),
          replaced: () => watcher.replaced(),
        }),
      barrier: () =>
        this.isCut
          ? Promise.reject(coded("RAFT_READ_TIMEOUT"))
          : new Promise((resolve) => this.clock.schedule(wordMs, () => resolve())),
      write: (writes, guards, done) => this.#write(shard, { writes, guards, done }, isNow),
    };
  }

  /** What is applied while it is cut off comes when it is not any more. */
  #apply(tell: () => void): void {
    if (this.isCut) this.#unapplied.push(tell);
    else tell();
  }

  #write(
    shard: FakeMapShard,
    {
      writes,
      guards,
      done,
    }: { writes: readonly MapWrite[]; guards: readonly MapGuard[]; done: Done },
    isNow: () => boolean,
  ): void {
    let isOver = false;
    const tell: Done = (error, timeUs) => {
      if (isOver || !isNow()) return;
      isOver = true;
      done(error, timeUs);
    };
    const delayMs = this.delayMsOf(writes.map(({ key }) => key));
    const go = (): void => {
      if (delayMs === 0) shard.write(writes, guards, tell);
      else this.clock.schedule(delayMs, () => shard.write(writes, guards, tell));
    };
    const fate = this.fates.shift();
    if (fate !== undefined) {
      if (fate === "happens") shard.write(writes, guards, () => undefined);
      this.clock.schedule(fateMs, () => tell(coded("STORE_FATE_UNKNOWN"), 0));
      return;
    }
    if (!this.isCut) return go();
    this.#held.push(() => isNow() && !isOver && go());
    this.clock.schedule(fateMs, () => tell(coded("STORE_FATE_UNKNOWN"), 0));
  }

  async #publishWill(
    isNow: () => boolean,
    will: Will,
    clientId: string,
    _user: string | undefined,
    stamp: WriterStamp | undefined,
  ): Promise<void> {
    if (!isNow()) return new Promise(() => undefined);
    const line = `${clientId} ${will.topic} ${will.frame.toString()}`;
    if (stamp === undefined) {
      this.world.wills.push(line);
      return;
    }
    const { topic } = will;
    const request = { topic, publisher: clientId, form: "raw" as const, qos: will.qos };
    const rest = { retain: false, expiryUs: 0, expiryOffset: 0, keep: false, evidence: undefined };
    await new Promise<void>((resolve, reject) => {
      this.world.store.append(
        { ...request, ...rest, frame: will.frame, writer: stamp },
        (error, outcome) => {
          if (error !== undefined) return reject(error);
          const name = `${stamp.name} ${outcome?.kind === "stored" ? outcome.timeUs : 0}`;
          // A repeat is answered with the time of the first.
          if (!this.world.stamped.has(name)) this.world.wills.push(line);
          this.world.stamped.add(name);
          resolve();
        },
      );
    });
  }
}

function copyOf(data: FakeData): FakeData {
  const copy = createFakeData({ stateShards: 0, logShards: 0 });
  for (const [number, rows] of data.maps) copy.maps.set(number, new Map(rows));
  for (const [number, rows] of data.logs) copy.logs.set(number, [...rows]);
  for (const [number, timeUs] of data.lastUs) copy.lastUs.set(number, timeUs);
  return copy;
}

function processClock(clock: SimClock, isNow: () => boolean) {
  return {
    wallUs: () => clock.wallUs(),
    elapsedMs: () => clock.elapsedMs(),
    schedule: (delayMs: number, task: () => void) =>
      clock.schedule(delayMs, () => isNow() && task()),
    soon: (task: () => void) => clock.soon(() => isNow() && task()),
  };
}
