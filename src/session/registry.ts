// All sessions of this node: who is attached under which client id, and how a connection creates,
// resumes, takes over or discards a session. One connect, close or timer at a time per client id.
//
// Takeover: the old session stops, its state is committed under its epoch, the claim is made (a new
// epoch), and only then is the old connection ended. A connection that is refused changes nothing.

import { type Cancel, type Clock, isCodedError, type Logger } from "../base/index.ts";
import type { MapShard, MapWrite, Store } from "../store/index.ts";
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
  Will,
  WillPublisher,
} from "./api.ts";
import { Checkpointer } from "./checkpointer.ts";
import { Closing } from "./closing.ts";
import type { SessionContext } from "./context.ts";
import { willAtConnect } from "./core/deadline.ts";
import {
  type ClaimRecord,
  decodeDue,
  decodeLive,
  decodeSubscription,
  encodeClaim,
  encodeCursor,
  encodeIds,
  encodeLive,
  encodeWill,
} from "./core/records.ts";
import { type Horizon, Reservation } from "./core/reservation.ts";
import { DurableSession } from "./durable.ts";
import { sessionErrors } from "./errors.ts";
import { SharedGroups } from "./groups/groups.ts";
import { interestOf } from "./groups/interest.ts";
import { type Groups, sharedTopicFilter } from "./groups/member.ts";
import { Inspector } from "./inspect/inspector.ts";
import { SessionTable } from "./inspect/table.ts";
import { clientLevelOf, duePrefix, livePrefix, sessionKeys, subscriptionPrefix } from "./keys.ts";
import { MemorySession } from "./memory.ts";
import { RetainedStore } from "./retained.ts";
import { createSessionCounters, type SessionCounters, type SessionSettings } from "./settings.ts";
import { StateWriter } from "./state-writer.ts";
import {
  deleteKey,
  eachEntry,
  eraseStoredSession,
  guarded,
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
  /** Told each time a named phase is reached: tests stop the process there. */
  readonly phase?: (name: string) => void;
};

type Attached = DurableSession | MemorySession;

/** What came before a new connection. */
type Before = { readonly active: Attached | undefined; readonly stored: StoredSession | undefined };

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
  readonly #closing: Closing;
  readonly #timers: SessionTimers;
  readonly #userLimit: UserLimit;
  readonly #active = new Map<string, Attached>();
  readonly #checkpointers = new Map<MapShard, Checkpointer>();
  readonly #phase: (name: string) => void;
  #durableCount = 0;
  #closed = false;

  constructor(settings: SessionSettings, components: SessionComponents) {
    const { store, clock, logger, live, wills } = components;
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
    this.inspector = new Inspector({
      ...{ context: this.#context, table: this.#table, turnstile: this.#turnstile },
      closing: this.#closing,
      attached: (clientId) => {
        const session = this.#active.get(clientId);
        return session?.durable ? session : undefined;
      },
    });
    this.#timers = new SessionTimers({
      context: this.#context,
      timeline: this.#timeline,
      turnstile: this.#turnstile,
      closing: this.#closing,
      wills: this.#wills,
      isConnected: (clientId) => this.#active.has(clientId),
    });
  }

  async load(): Promise<void> {
    await Promise.all(this.#context.store.stateShards.map((shard) => this.#loadShard(shard)));
    this.#table.dropNameless();
    await this.#groups.load();
    await this.#wills.load();
  }

  async #loadShard(shard: MapShard): Promise<void> {
    const { interest } = this.#context.store;
    await eachEntry(shard, subscriptionPrefix, ({ key, value }) => {
      try {
        const { subscription, start } = decodeSubscription(value);
        const { filter, qos } = subscription;
        this.#table.loadSubscription(clientLevelOf(key));
        if (qos === 0) return;
        if (sharedTopicFilter(filter) === undefined) {
          interest.add(filter, start);
          this.#table.loadFilter(clientLevelOf(key), filter, interest.timesOf(filter));
        } else this.#groups.loadInterest(clientLevelOf(key), filter, start);
      } catch (error) {
        // The broker starts all the same; the session tells its client when it connects.
        this.counters.recordsCorrupt++;
        this.#context.logger.error("session.record_corrupt", { key, error });
      }
    });
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
  }

  connect(request: ConnectRequest, link: SessionLink): Promise<ConnectOutcome> {
    if (this.#closed) return Promise.reject(sessionErrors.closed());
    return this.#turnstile.run(request.clientId, () => this.#connect(request, link));
  }

  counts(): { readonly durable: number; readonly connected: number } {
    return { durable: this.#durableCount, connected: this.#active.size };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#timers.stop();
    this.#wills.stop();
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
    const { clientId } = request;
    const active = this.#active.get(clientId);
    if (active !== undefined) this.#checkUser(request, active.user);
    await this.#wills.finishPending(clientId);
    if (active === undefined) {
      const stored = await this.#readOrErase(request);
      if (stored !== undefined) this.#checkUser(request, stored.claim.user);
      return this.#attach(request, link, { active, stored });
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
    return this.#attach(request, link, { active, stored });
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
    const value = encodeClaim(active.claimRecord);
    await this.#writer(clientId).write(() => guarded(keys, epoch, [{ key: keys.claim, value }]));
  }

  /** Makes the new session; then the old connection ends and the old will goes its way. */
  async #attach(
    request: ConnectRequest,
    link: SessionLink,
    before: Before,
  ): Promise<ConnectOutcome> {
    const { active, stored } = before;
    const present = stored !== undefined && continues(request, before);
    const willBefore = stored === undefined ? active?.will : stored.will;
    const fate =
      willBefore === undefined
        ? "cancel"
        : willAtConnect({
            takenOver: active !== undefined,
            sessionContinues: present,
            delayS: willBefore.delayS,
          });
    let marked: MarkedWill | undefined;
    let session: Attached;
    if (present) {
      const fire = fate === "publish" && willBefore !== undefined ? willBefore : undefined;
      const resumed = await this.#resume(request, link, stored, fire);
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
      const session = await this.#make(request, link);
      this.#table.connected(request.clientId, request.user, session);
      return session;
    });
  }

  async #make(request: ConnectRequest, link: SessionLink): Promise<DurableSession> {
    const keys = sessionKeys(request.clientId);
    const claim = this.#claimRecord(request, 0);
    const cursor = this.#context.store.tail();
    const reservation = this.#createReservation(link, undefined);
    const ids = reservation.renewal(this.#horizon(), cursor);
    const writes: MapWrite[] = [
      { key: keys.cursor, value: encodeCursor({ positions: cursor, dropped: 0 }) },
      { key: keys.ids, value: encodeIds(ids) },
      ...this.#ownerWrites(request),
      { key: keys.claim, value: encodeClaim(claim) },
    ];
    const guards = [{ key: keys.claim, timeUs: undefined }];
    const epoch = await this.#writer(request.clientId).write(() => ({ writes, guards }));
    reservation.committed(ids);
    this.#durableCount++;
    this.counters.sessionsCreated++;
    const stored: StoredSession = {
      keys,
      claim,
      epoch,
      incarnation: epoch,
      closed: undefined,
      will: undefined,
      cursor,
      dropped: 0,
      ids: undefined,
      subscriptions: [],
      inFlight: [],
      jobs: [],
      allKeys: [],
    };
    return this.#durableSession(request, link, stored, reservation);
  }

  async #resume(
    request: ConnectRequest,
    link: SessionLink,
    stored: StoredSession,
    willToFire: Will | undefined,
  ): Promise<{ session: DurableSession; marked: MarkedWill | undefined }> {
    const { keys } = stored;
    await this.#groups.resolve(request.clientId, stored.inFlight);
    const claim = this.#claimRecord(request, stored.incarnation);
    const reservation = this.#createReservation(link, stored);
    const ids = reservation.renewal(this.#horizon(), stored.cursor);
    const fire =
      willToFire === undefined
        ? undefined
        : this.#wills.mark(stored.claim, stored.epoch, willToFire);
    const writes: MapWrite[] = [
      { key: keys.ids, value: encodeIds(ids) },
      deleteKey(keys.closed),
      ...(stored.closed === undefined ? [] : [deleteKey(keys.due(stored.closed.dueUs))]),
      ...(fire === undefined ? [] : [fire.write]),
      ...this.#ownerWrites(request),
      // Last: a write that has to be cut in parts (a huge will) takes effect with it.
      { key: keys.claim, value: encodeClaim(claim) },
    ];
    const guards = [{ key: keys.claim, timeUs: stored.epoch }];
    const epoch = await this.#writer(request.clientId).write(() => ({ writes, guards }));
    reservation.committed(ids);
    this.counters.sessionsResumed++;
    const claimed = { ...stored, claim, epoch };
    const session = this.#durableSession(request, link, claimed, reservation);
    return { session, marked: fire?.marked };
  }

  #durableSession(
    request: ConnectRequest,
    link: SessionLink,
    stored: StoredSession,
    reservation: Reservation,
  ): DurableSession {
    const { expiryS, will } = request;
    const claimed = { stored, expiryS, will, reservation };
    return new DurableSession(this.#context, claimed, link, this.#detachDurable);
  }

  #claimRecord(request: ConnectRequest, incarnation: number): ClaimRecord {
    const { clientId, user, protocol, expiryS } = request;
    const bootUs = this.#timeline.startedUs;
    return { clientId, user, protocol, expiryS, incarnation, bootUs, removing: false };
  }

  #ownerWrites(request: ConnectRequest): MapWrite[] {
    const { clientId, user, will } = request;
    const keys = sessionKeys(clientId);
    const live = encodeLive({ clientId, user, bootUs: this.#timeline.startedUs });
    return [
      { key: keys.live, value: live },
      { key: keys.will, value: will === undefined ? undefined : encodeWill(will) },
    ];
  }

  #horizon(): Horizon {
    const { store, clock } = this.#context;
    return { tail: store.tail(), wallUs: clock.wallUs() };
  }

  #createReservation(link: SessionLink, stored: StoredSession | undefined): Reservation {
    const { inflightMax, sentAheadMs } = this.#context.settings;
    const windowMax = Math.min(inflightMax, link.receiveMaximum);
    return new Reservation({ windowMax, sentAheadUs: sentAheadMs * 1000 }, stored?.ids);
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
