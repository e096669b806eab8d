// All sessions of this node: who is attached under which client id, and how a connection creates,
// resumes, takes over or discards a session. One connect, close or timer at a time per client id.
//
// Takeover: the old session stops, its state is committed under its epoch, the claim is made (a new
// epoch), and only then is the old connection ended. A connection that is refused changes nothing.

import { type Cancel, type Clock, isCodedError, type Logger } from "../base/index.ts";
import type { MapShard, Store } from "../store/index.ts";
import type { Across, AcrossParts, Cleared } from "./across/across.ts";
import type {
  ConnectOutcome,
  ConnectRequest,
  DetachCause,
  GroupInspector,
  LiveSubscriptions,
  Retained,
  SessionInspector,
  SessionLink,
  Sessions,
  WillPublisher,
} from "./api.ts";
import { Checkpointer } from "./checkpointer.ts";
import { Claiming } from "./claiming.ts";
import { Closing } from "./closing.ts";
import type { SessionContext } from "./context.ts";
import { willAtConnect } from "./core/deadline.ts";
import { decodeDue, decodeLive } from "./core/records.ts";
import type { DurableSession } from "./durable.ts";
import { sessionErrors } from "./errors.ts";
import { SharedGroups } from "./groups/groups.ts";
import { interestOf } from "./groups/interest.ts";
import type { Groups } from "./groups/member.ts";
import { Inspector } from "./inspect/inspector.ts";
import { SessionTable } from "./inspect/table.ts";
import { duePrefix, livePrefix } from "./keys.ts";
import { MemorySession } from "./memory.ts";
import type { SessionNodes } from "./nodes.ts";
import { RetainedStore } from "./retained.ts";
import { createSessionCounters, type SessionCounters, type SessionSettings } from "./settings.ts";
import { StateWriter } from "./state-writer.ts";
import { StoredRows } from "./stored-rows.ts";
import {
  eachEntry,
  eraseStoredSession,
  readStoredSession,
  type StoredSession,
} from "./stored-session.ts";
import { Timeline } from "./timeline.ts";
import { SessionTimers } from "./timers.ts";
import { Turnstile } from "./turnstile.ts";
import { UserLimit } from "./user-limit.ts";
import { type MarkedWill, WillFirer } from "./wills.ts";

export type SessionComponents = {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly live: LiveSubscriptions;
  readonly wills: WillPublisher;
  /** The others of a cluster; their sessions stand in the same store. */
  readonly nodes?: SessionNodes | undefined;
  /** Beside `nodes`: what a node by itself does not load. */
  readonly createAcross?: ((parts: AcrossParts) => Across) | undefined;
  /** Told each time a named phase is reached: tests stop the process there. */
  readonly phase?: (name: string) => void;
};

type Attached = DurableSession | MemorySession;

/** What came before a new connection. */
type Before = {
  readonly active: Attached | undefined;
  readonly stored: StoredSession | undefined;
  /** There was a connection until now, here or at another node. */
  readonly takenOver: boolean;
};

/** By itself a node has nobody to wait for. */
const alone: Cleared = { isReleased: false };

const sessionTakenOver = 0x8e;

export class SessionRegistry implements Sessions {
  readonly retained: Retained;
  readonly counters: SessionCounters;
  readonly #context: SessionContext;
  readonly #timeline: Timeline;
  readonly #turnstile = new Turnstile();
  readonly inspector: SessionInspector;
  readonly sharedGroups: GroupInspector;
  readonly #table = new SessionTable();
  readonly #wills: WillFirer;
  readonly #groups: SharedGroups;
  readonly #rows: StoredRows;
  readonly #closing: Closing;
  readonly #claiming: Claiming;
  /** Undefined at a node by itself. */
  readonly #across: Across | undefined;
  readonly #timers: SessionTimers;
  readonly #userLimit: UserLimit;
  readonly #active = new Map<string, Attached>();
  readonly #checkpointers = new Map<MapShard, Checkpointer>();
  readonly #phase: (name: string) => void;
  #durableCount = 0;
  #closed = false;

  constructor(settings: SessionSettings, components: SessionComponents) {
    const { store, clock, logger, live, wills, nodes } = components;
    this.counters = createSessionCounters();
    this.#phase = components.phase ?? (() => undefined);
    this.#userLimit = new UserLimit(settings.sessionsPerUserMax, this.#table, this.counters);
    this.#timeline = new Timeline(clock, settings.restartGraceMs);
    const retained = new RetainedStore(store, {
      nowUs: () => clock.wallUs(),
      onCorrupt: (key, error) => {
        this.counters.recordsCorrupt++;
        logger.error("session.record_corrupt", { key, error });
      },
      cacheBytesMax: settings.retainedCacheBytesMax,
    });
    this.retained = retained;
    this.#context = {
      store,
      clock,
      owner: nodes && { node: nodes.node, start: nodes.start },
      logger,
      live,
      wills,
      retained,
      settings,
      counters: this.counters,
      table: this.#table,
      checkpointer: (shard) => this.#checkpointer(shard),
      get groups(): Groups {
        return groups;
      },
    };
    const groups = new SharedGroups(this.#context);
    this.#groups = groups;
    this.#rows = new StoredRows({
      context: this.#context,
      shared: (level, { subscription, start }) => {
        groups.loadInterest(level, subscription.filter, start);
      },
    });
    this.sharedGroups = groups;
    this.#wills = new WillFirer(this.#context, this.#turnstile);
    this.#closing = new Closing({
      context: this.#context,
      timeline: this.#timeline,
      wills: this.#wills,
      armed: (clientId, dueUs) => this.#timers.arm(clientId, dueUs),
      removed: () => {
        this.#durableCount--;
      },
    });
    this.#claiming = new Claiming({
      ...{ context: this.#context, timeline: this.#timeline, wills: this.#wills },
      detach: this.#detachDurable,
      created: () => {
        this.#durableCount++;
      },
    });
    const inspector = new Inspector({
      ...{ context: this.#context, table: this.#table, turnstile: this.#turnstile },
      closing: this.#closing,
      attached: (clientId) => {
        const session = this.#active.get(clientId);
        return session?.durable ? session : undefined;
      },
      operate: async (owner, operation) => this.#across?.operate(owner, operation),
    });
    this.inspector = inspector;
    this.#timers = new SessionTimers({
      context: this.#context,
      timeline: this.#timeline,
      turnstile: this.#turnstile,
      closing: this.#closing,
      wills: this.#wills,
      isConnected: (clientId) => this.#active.has(clientId),
    });
    const { createAcross } = components;
    this.#across = nodes && createAcross?.(this.#acrossParts(nodes, inspector));
  }

  #acrossParts(nodes: SessionNodes, inspector: Inspector): AcrossParts {
    return {
      ...{ context: this.#context, nodes, turnstile: this.#turnstile, closing: this.#closing },
      ...{ claiming: this.#claiming, timeline: this.#timeline, timers: this.#timers },
      ...{ wills: this.#wills, attached: this.#active },
      dropped: (session) => this.#dropped(session),
      operated: (operation) => inspector.operateHere(operation),
    };
  }

  async load(): Promise<void> {
    await this.#rows.load();
    await Promise.all(this.#context.store.stateShards.map((shard) => this.#loadShard(shard)));
    await this.#groups.load();
    await this.#wills.load();
  }

  async #loadShard(shard: MapShard): Promise<void> {
    if (this.#across !== undefined) return this.#across.follow(shard);
    // Every durable session has exactly one key under one of the two.
    await eachEntry(shard, livePrefix, ({ value }) => {
      this.#durableCount++;
      const record = this.#readable(() => decodeLive(value));
      if (record !== undefined) this.#table.load(record.clientId, record.user, undefined);
    });
    await eachEntry(shard, duePrefix, ({ value }) => {
      this.#durableCount++;
      const record = this.#readable(() => decodeDue(value));
      if (record !== undefined) this.#table.load(record.clientId, record.user, record);
    });
  }

  /** Damage is told by whoever needs the record. */
  #readable<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      if (!isCodedError(error) || error.kind !== "corrupt") throw error;
      return undefined;
    }
  }

  start(): void {
    this.#groups.start();
    this.#timers.start();
    this.#across?.start();
  }

  connect(request: ConnectRequest, link: SessionLink): Promise<ConnectOutcome> {
    if (this.#closed) return Promise.reject(sessionErrors.closed());
    return this.#turnstile.run(request.clientId, () => this.#connect(request, link));
  }

  counts(): { readonly durable: number; readonly connected: number } {
    const durable = this.#across === undefined ? this.#durableCount : this.#table.size;
    return { durable, connected: this.#active.size };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#timers.stop();
    this.#wills.stop();
    this.#across?.stop();
    await Promise.allSettled(
      [...this.#active.values()].map((session) => session.detach({ kind: "shutdown" })),
    );
    await this.#turnstile.idle();
    await this.#groups.close();
    for (const checkpointer of this.#checkpointers.values()) {
      checkpointer.stop();
      await checkpointer.writer.idle();
    }
  }

  // -------------------------------------------------------------- connecting

  async #connect(request: ConnectRequest, link: SessionLink): Promise<ConnectOutcome> {
    if (this.#closed) throw sessionErrors.closed();
    if (this.#across === undefined) return this.#admit(request, link, alone);
    return this.#across.connect(request, (cleared) => this.#admit(request, link, cleared));
  }

  async #admit(
    request: ConnectRequest,
    link: SessionLink,
    cleared: Cleared,
  ): Promise<ConnectOutcome> {
    const { clientId } = request;
    const active = this.#active.get(clientId);
    if (active !== undefined) this.#checkUser(request, active.user);
    await this.#wills.finishPending(clientId);
    if (active === undefined) {
      return this.#attach(request, link, await this.#before(request, cleared));
    }
    try {
      return await this.#takeOver(request, link, active);
    } catch (error) {
      // The old session has stopped already: its connection must not go on without one.
      if (this.#active.get(clientId) === active) this.#active.delete(clientId);
      active.endLink(sessionTakenOver);
      throw error;
    }
  }

  /** What is stored, and written to by nobody else any more. */
  async #before(request: ConnectRequest, cleared: Cleared): Promise<Before> {
    const active = undefined;
    const stored = await this.#readOrErase(request);
    if (stored === undefined) return { active, stored, takenOver: cleared.isReleased };
    this.#checkUser(request, stored.claim.user);
    if (this.#across === undefined) return { active, stored, takenOver: false };
    const wasOpen = stored.closed === undefined && this.#across.isAlive(stored.claim.owner);
    return {
      ...{ active, takenOver: wasOpen || cleared.isReleased },
      stored: await this.#across.secured(stored, cleared),
    };
  }

  async #takeOver(
    request: ConnectRequest,
    link: SessionLink,
    active: Attached,
  ): Promise<ConnectOutcome> {
    active.stop();
    this.#phase("takeover.stopped");
    if (active.durable) await this.#lastCommit(active);
    this.#phase("takeover.committed");
    const shard = this.#context.store.state(request.clientId);
    const stored = active.durable ? await readStoredSession(shard, request.clientId) : undefined;
    this.counters.sessionsTakenOver++;
    return this.#attach(request, link, { active, stored, takenOver: true });
  }

  /** Without the answer of the old owner the claim goes ahead, and what it writes later is refused. */
  async #lastCommit(active: DurableSession): Promise<void> {
    const { clock, settings, logger } = this.#context;
    const commit = this.#closing.commit(active);
    if (await settlesWithin(clock, settings.takeoverWaitMs, commit)) return;
    this.counters.takeoversUnanswered++;
    const { clientId, keys, epoch } = active;
    logger.warn("session.takeover_unanswered", { clientId });
    active.abandoned = true;
    commit.catch(() => undefined); // refused by the fence, as it should be
    await this.#claiming.fence({ keys, epoch, claim: active.claimRecord });
  }

  /** Makes the new session; then the old connection ends and the old will goes its way. */
  async #attach(
    request: ConnectRequest,
    link: SessionLink,
    before: Before,
  ): Promise<ConnectOutcome> {
    const { active, stored, takenOver } = before;
    const present = stored !== undefined && continues(request, before);
    const willBefore = stored === undefined ? active?.will : stored.will;
    const fate =
      willBefore === undefined
        ? "cancel"
        : willAtConnect({
            takenOver,
            sessionContinues: present,
            delayS: willBefore.delayS,
          });
    let marked: MarkedWill | undefined;
    let session: Attached;
    if (present) {
      const fire = fate === "publish" && willBefore !== undefined ? willBefore : undefined;
      const resumed = await this.#claiming.resume(request, link, stored, fire);
      session = resumed.session;
      marked = resumed.marked;
    } else {
      if (stored !== undefined) await this.#closing.remove(stored, true);
      session =
        request.expiryS === 0
          ? new MemorySession(this.#context, request, link, this.#detachMemory)
          : await this.#create(request, link);
      if (stored === undefined) marked = unstoredWill(active);
    }
    this.#active.set(request.clientId, session);
    if (session.durable) this.#table.connected(request.clientId, request.user, session);
    if (active !== undefined) this.#phase("takeover.claimed");
    active?.endLink(sessionTakenOver);
    if (marked !== undefined) await this.#wills.publish(marked);
    return { session, sessionPresent: present };
  }

  #create(request: ConnectRequest, link: SessionLink): Promise<DurableSession> {
    return this.#userLimit.within(request.user, async () => {
      const session = await this.#claiming.create(request, link);
      this.#table.connected(request.clientId, request.user, session);
      return session;
    });
  }

  /** A clean start discards what cannot be read too. */
  async #readOrErase(request: ConnectRequest): Promise<StoredSession | undefined> {
    const { clientId } = request;
    try {
      return await this.#readCurrent(clientId);
    } catch (error) {
      if (!request.cleanStart || !isCodedError(error) || error.kind !== "corrupt") throw error;
      this.counters.recordsCorrupt++;
      this.#context.logger.error("session.discarded_corrupt", { clientId, error });
      const interest = interestOf(this.#context, clientId);
      await eraseStoredSession(interest, this.#writer(clientId), clientId);
      await this.#groups.resolve(clientId, []);
      this.#durableCount--;
      this.#table.removed(clientId);
      return undefined;
    }
  }

  /** The stored session, after what has fallen due for it. */
  async #readCurrent(clientId: string): Promise<StoredSession | undefined> {
    const shard = this.#context.store.state(clientId);
    const stored = await readStoredSession(shard, clientId);
    if (stored === undefined || !this.#closing.isExpired(stored)) return stored;
    await this.#closing.settle(stored);
    return readStoredSession(shard, clientId);
  }

  #checkUser(request: ConnectRequest, owner: string | undefined): void {
    if (request.user === owner) return;
    this.counters.usersRefused++;
    throw sessionErrors.userMismatch({ clientId: JSON.stringify(request.clientId) });
  }

  // -------------------------------------------------------------- closing

  readonly #detachDurable = (session: DurableSession, cause: DetachCause): Promise<void> => {
    session.stop();
    return this.#turnstile.run(session.clientId, async () => {
      if (this.#active.get(session.clientId) !== session) return;
      if (session.isFenced) return this.#dropped(session);
      try {
        await this.#closing.close(session, cause);
      } catch (error) {
        // Its records say "connected": the next start takes it for an end without notice.
        this.#table.closed(session.clientId, undefined);
        this.#context.logger.error("session.close_failed", { clientId: session.clientId, error });
      } finally {
        this.#active.delete(session.clientId);
      }
    });
  };

  /** Another node has its client now. */
  async #dropped(session: Attached): Promise<void> {
    if (this.#active.get(session.clientId) === session) this.#active.delete(session.clientId);
    if (session.durable) this.#table.closed(session.clientId, undefined);
    const marked = unstoredWill(session);
    if (marked !== undefined) await this.#wills.publish(marked);
  }

  readonly #detachMemory = (session: MemorySession, cause: DetachCause): Promise<void> => {
    session.stop();
    return this.#turnstile.run(session.clientId, async () => {
      if (this.#active.get(session.clientId) !== session) return;
      this.#active.delete(session.clientId);
      const marked = cause.kind === "lost" ? unstoredWill(session) : undefined;
      if (marked !== undefined) await this.#wills.publish(marked);
    });
  };

  // -------------------------------------------------------------- parts

  #checkpointer(shard: MapShard): Checkpointer {
    const known = this.#checkpointers.get(shard);
    if (known !== undefined) return known;
    const { clock, logger, settings } = this.#context;
    const writer = new StateWriter(shard, clock, this.counters);
    const components = { clock, logger, counters: this.counters, phase: this.#phase };
    const checkpointer = new Checkpointer(writer, components, settings);
    this.#checkpointers.set(shard, checkpointer);
    return checkpointer;
  }

  #writer(clientId: string): StateWriter {
    return this.#checkpointer(this.#context.store.state(clientId)).writer;
  }
}

/** Creates the session room over a store. Call `load` before the store starts, `start` after. */
export function createSessions(
  settings: SessionSettings,
  components: SessionComponents,
): SessionRegistry {
  return new SessionRegistry(settings, components);
}

/** Whether the stored session lives on in the new connection. */
function continues(request: ConnectRequest, { active, stored }: Before): boolean {
  if (request.cleanStart) return false;
  // Resumed with expiry 0, it ended with its connection: taken over now, or cut off by a crash.
  const expiryS = active?.durable ? active.expiryS : (stored?.closed ?? stored?.claim)?.expiryS;
  return expiryS !== 0;
}

/** False: it did not settle in time, and goes on. Rejects as the work does. */
async function settlesWithin(clock: Clock, waitMs: number, work: Promise<void>): Promise<boolean> {
  let cancel: Cancel | undefined;
  const late = new Promise<boolean>((resolve) => {
    cancel = clock.schedule(waitMs, () => resolve(false));
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    cancel?.();
  }
}

function unstoredWill(session: Attached | undefined): MarkedWill | undefined {
  if (session === undefined || session.durable || session.will === undefined) return undefined;
  const { clientId, user, will } = session;
  return { key: undefined, record: { clientId, user, will, writerEpoch: 0 }, attempts: 0 };
}
