// The broker: accepts connections, gives each its limits before login, and lets all of them go when
// it stops. It builds the paths that connections share and owns the session room.
//
// Order at start: `load` (filters of stored sessions), then the store's own start, then `start`, then
// connections. `close` goes the other way: nothing new is accepted, clients are told 0x8B in paced
// batches, what was taken from them is finished, and the sessions commit.

import {
  type ByteConnection,
  type Clock,
  type ConnectionHandlers,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  type Logger,
  type Network,
  type Random,
  sleep,
} from "../base/index.ts";
import { ChunkPool, RunReader } from "../mqtt/index.ts";
import type { LiveSubscriptions, Sessions, Will, WillPublisher } from "../session/index.ts";
import type { Store } from "../store/index.ts";
import { type AccessPort, allowAll, Rights } from "./access.ts";
import { LoginThrottle, ThrottledAuth } from "./auth/throttle.ts";
import { ClientDirectory } from "./clients.ts";
import { ClientConnection, type ConnectionOwner } from "./connection.ts";
import type { ConnectionParts } from "./connection-parts.ts";
import { type BrokerCounters, createBrokerCounters } from "./counters.ts";
import { HookedAuth } from "./hooks/auth.ts";
import { HookRunner } from "./hooks/runner.ts";
import type { Hooks } from "./hooks/types.ts";
import { LimitedLog } from "./limited-log.ts";
import { Admission } from "./limits/admission.ts";
import { Flapping } from "./limits/flapping.ts";
import { Overload } from "./limits/overload.ts";
import { type ListenerTerms, openTerms } from "./listener-terms.ts";
import { LiveTrie } from "./live-subscriptions.ts";
import type { LivePeers, LivePeersParts } from "./peers/ports.ts";
import { PublishPath } from "./publish-path.ts";
import type { BrokerSettings } from "./settings.ts";
import { SysTopics } from "./sys-topics.ts";
import type { SysFacts } from "./sys-values.ts";
import { Tap } from "./tap.ts";
import { WriteTurn } from "./write-path.ts";

/** What sessions need of the broker. */
export type SessionPorts = { readonly live: LiveSubscriptions; readonly wills: WillPublisher };

export type BrokerComponents = {
  readonly network: Network;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly store: Store;
  /** Default: everybody may do everything outside the closed prefixes. */
  readonly access?: AccessPort;
  /** Of the program around, asked in this order. */
  readonly hooks?: readonly Hooks[];
  /** A user that nobody may log in as: the program's own. */
  readonly reservedUser?: string;
  /** Told in `$SYS/broker/version`. */
  readonly version?: string;
  /** Of a member of a cluster: the way to the clients of the other nodes. */
  readonly peers?: (parts: LivePeersParts) => LivePeers;
  /** Nothing is written, and nobody knows for how long: a member of a cluster without a majority. */
  readonly isStuck?: () => boolean;
  /** Memory that the process uses, for `overload`; default: not known. */
  readonly memoryBytes?: () => number;
  /** The broker owns what this returns. */
  readonly createSessions: (ports: SessionPorts) => Sessions;
};

const nothing: ConnectionHandlers = {
  onData: () => undefined,
  onDrain: () => undefined,
  onClose: () => undefined,
};

const drainTellMs = 1000;
/** Longer than an election. */
const strandedMs = 10_000;

export class Broker implements ConnectionOwner {
  readonly counters: BrokerCounters;
  readonly sessions: Sessions;
  /** For who wants to watch. */
  readonly tap = new Tap();
  readonly #settings: BrokerSettings;
  readonly #components: BrokerComponents;
  readonly #parts: ConnectionParts;
  readonly #live: LiveTrie;
  readonly #peers: LivePeers | undefined;
  readonly #listeners: Listener[] = [];
  readonly #connections = new Set<ClientConnection>();
  readonly #admission: Admission;
  readonly #overload: Overload;
  readonly #throttle: LoginThrottle;
  readonly #hooks: HookRunner | undefined;
  readonly #sys: SysTopics;
  readonly #startedMs: number;
  #connectedMax = 0;
  readonly #detaching = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;
  #whenEmpty: (() => void) | undefined;

  constructor(settings: BrokerSettings, components: BrokerComponents) {
    const { clock, random, logger, store, access = allowAll } = components;
    this.#settings = settings;
    this.#components = components;
    const counters = createBrokerCounters();
    this.counters = counters;
    const rights = new Rights(access, settings);
    const log = new LimitedLog(logger, clock, settings.logLinesPerSMax);
    const live = new LiveTrie(settings.topicCacheMax);
    this.#live = live;
    const { storeQos0 } = settings;
    const retained = () => this.sessions.retained;
    const { hooks: sets = [] } = components;
    const timeoutMs = settings.hookTimeoutMs;
    const hooks =
      sets.length === 0 ? undefined : new HookRunner(sets, { clock, counters, logger, timeoutMs });
    this.#hooks = hooks;
    const peers = components.peers?.({
      ...{ trie: live, clock, counters, log },
      isClosed: (topic) => rights.isClosed(topic),
      onRoom: () => path.roomAgain(),
    });
    this.#peers = peers;
    const path = new PublishPath({
      ...{ store, retained, live, rights, clock, counters, log, storeQos0, hooks, peers },
      publishWaitMs: settings.publishWaitMs,
    });
    this.sessions = components.createSessions({ live: peers?.live ?? live, wills: path });
    const runs = new RunReader();
    const turn = new WriteTurn(clock, new ChunkPool(), counters, () => peers?.flush());
    const sessions = this.sessions;
    const memoryBytes = components.memoryBytes ?? (() => 0);
    this.#overload = new Overload(settings.overload, clock, memoryBytes, (level, lagMs) => {
      logger.warn("broker.overload", { level, lagMs: Math.round(lagMs) });
    });
    this.#admission = new Admission(settings, counters, this.#overload, clock.elapsedMs());
    this.#throttle = new LoginThrottle(settings.throttle, clock, random);
    const flapping = new Flapping(settings.flapping);
    const isSheddingQos0 = () => this.#overload.level === 2;
    this.#startedMs = clock.elapsedMs();
    const sys = new SysTopics({
      ...{ live, clock, intervalMs: settings.sysIntervalMs },
      facts: () => this.#sysFacts(),
      sent: () => {
        counters.sysPublishes++;
      },
    });
    this.#sys = sys;
    this.#parts = {
      ...{ settings, clock, random, rights, counters, log, turn, runs, path, sessions },
      ...{ flapping, isSheddingQos0, hooks, sys, tap: this.tap, peers },
      reservedUser: components.reservedUser,
    };
  }

  /** Before the store starts: its replay must know the filters. */
  load(): Promise<void> {
    return this.sessions.load();
  }

  /** After the store has started, before the first connection. */
  start(): void {
    this.sessions.start();
    this.#overload.start();
    this.#sys.start();
  }

  /** @throws what the network throws when the address cannot be had. */
  async listen(
    address: ListenAddress,
    terms: ListenerTerms = openTerms,
    options: ListenOptions = {},
  ): Promise<Listener> {
    const listener = await this.#components.network.listen(
      address,
      (connection) => this.accept(connection, terms),
      { refused: (remote, why) => this.handshakeRefused(remote, terms.name, why), ...options },
    );
    this.#listeners.push(listener);
    return listener;
  }

  /** Serves a connection that somebody has accepted. */
  accept(transport: ByteConnection, terms: ListenerTerms = openTerms): ConnectionHandlers {
    const { clock } = this.#components;
    if (this.#closing !== undefined) {
      transport.destroy();
      return nothing;
    }
    const ticket = this.#admission.admit(transport.remote, terms, clock.elapsedMs());
    if ("event" in ticket) {
      this.#parts.log.warn(ticket.event, ticket.fields);
      transport.destroy();
      return nothing;
    }
    this.counters.connectionsAccepted++;
    const admitted = { transport, terms: this.#guarded(terms), ticket };
    const connection = new ClientConnection(this.#parts, this, admitted);
    this.#connections.add(connection);
    return connection;
  }

  /** With what stands before the listener's own methods. */
  #guarded(terms: ListenerTerms): ListenerTerms {
    const hooks = this.#hooks;
    const auth = hooks === undefined ? terms.auth : new HookedAuth(hooks, terms.auth);
    return { ...terms, auth: new ThrottledAuth(this.#throttle, auth) };
  }

  /** A peer's TLS, WebSocket or PROXY header did not do. */
  handshakeRefused(remote: string, listener: string, why: string): void {
    this.counters.connectionsNoHandshake++;
    this.#parts.log.warn("broker.handshake_refused", { remote, listener, why });
  }

  /**
   * Users, keys or rules have changed: whoever would not be let in any more is let go, with 0x87.
   * Returns how many. Rights to topics need no call: they are asked for each message.
   */
  recheck(): number {
    let count = 0;
    for (const connection of [...this.#connections]) if (connection.recheck()) count++;
    return count;
  }

  counts(): { readonly connections: number; readonly liveFilters: number } {
    return { connections: this.#connections.size, liveFilters: this.#live.filterCount };
  }

  /** Connected clients, for the operator. */
  readonly clients: ClientDirectory = new ClientDirectory(() => this.#connections);

  /** Publishes for the operator and the program around. See `PublishPath.publishOwn`. */
  publish(message: Will): Promise<void> {
    return this.#parts.path.publishOwn(message);
  }

  /** Lets the clients go, finishes what was taken from them, and closes the sessions. Once. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // -------------------------------------------------------------- connections tell

  detaching(done: Promise<void>): void {
    this.#detaching.add(done);
    done.then(() => this.#detaching.delete(done)).catch(() => undefined);
  }

  closed(connection: ClientConnection): void {
    this.#connections.delete(connection);
    if (this.#connections.size === 0) this.#whenEmpty?.();
  }

  // -------------------------------------------------------------- the parts

  #sysFacts(): SysFacts {
    const { clock, version = "", memoryBytes = () => 0 } = this.#components;
    const { durable, connected } = this.sessions.counts();
    this.#connectedMax = Math.max(this.#connectedMax, connected);
    return {
      ...{ version, counters: this.counters, connected, connectedMax: this.#connectedMax },
      uptimeS: (clock.elapsedMs() - this.#startedMs) / 1000,
      durableSessions: durable,
      durableConnected: [...this.#connections].filter((one) => one.isDurable).length,
      liveFilters: this.#live.filterCount,
      memoryBytes: memoryBytes(),
    };
  }

  async #close(): Promise<void> {
    const { clock } = this.#components;
    const { closeBatchMax, closePaceMs, lingerMs } = this.#settings;
    this.#overload.stop();
    this.#sys.stop();
    const tellNoMore = this.#tellWhatIsLeft();
    await Promise.all(this.#listeners.map((listener) => listener.close()));
    let inBatch = 0;
    for (const connection of [...this.#connections]) {
      if (inBatch >= closeBatchMax) {
        await sleep(clock, closePaceMs);
        inBatch = 0;
      }
      connection.shutDown();
      inBatch++;
    }
    await Promise.race([this.#empty(), sleep(clock, lingerMs)]);
    for (const connection of this.#connections) connection.destroy();
    await Promise.race([this.#parts.path.idle(), sleep(clock, lingerMs)]);
    await this.#closeSessions();
    this.#peers?.close();
    tellNoMore();
  }

  /** Each second, for who waits for the end. Returns the end of it. */
  #tellWhatIsLeft(): () => void {
    const { clock, logger } = this.#components;
    const tell = (): void => {
      const [clients, sessions] = [this.#connections.size, this.#detaching.size];
      logger.info("broker.draining", { clients, sessions });
      cancel = clock.schedule(drainTellMs, tell);
    };
    let cancel = clock.schedule(drainTellMs, tell);
    return () => cancel();
  }

  /**
   * Waits for what sessions write, however slow it goes, but not for a store that takes nothing: a
   * full volume may stay full. To the next start those sessions ended without notice.
   */
  async #closeSessions(): Promise<void> {
    const { clock, store, logger, isStuck = () => false } = this.#components;
    const { lingerMs } = this.#settings;
    let stuckSinceMs: number | undefined;
    let isDone = false;
    const closing = this.#letSessionsGo().then(() => {
      isDone = true;
    });
    while (!isDone) {
      await Promise.race([closing, sleep(clock, lingerMs)]);
      stuckSinceMs = isStuck() ? (stuckSinceMs ?? clock.elapsedMs()) : undefined;
      const isStranded = clock.elapsedMs() - (stuckSinceMs ?? Infinity) >= strandedMs;
      const { refusal } = store;
      const takesNothing = refusal !== undefined && refusal.kind !== "retry";
      if (isDone || !(takesNothing || isStranded)) continue;
      closing.catch(() => undefined); // nobody waits for it any more
      const reason = refusal?.message ?? "no majority of the cluster is reached";
      logger.warn("broker.sessions_left_open", { reason });
      return;
    }
  }

  async #letSessionsGo(): Promise<void> {
    while (this.#detaching.size > 0) await Promise.all(this.#detaching);
    await this.sessions.close();
  }

  /** Resolves when the last connection has closed. */
  #empty(): Promise<void> {
    if (this.#connections.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenEmpty = resolve;
    });
  }
}

export function createBroker(settings: BrokerSettings, components: BrokerComponents): Broker {
  return new Broker(settings, components);
}
