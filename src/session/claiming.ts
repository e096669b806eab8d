// Claims of durable sessions: the one write by which a connection becomes the owner of a session, new
// or resumed. Guarded by what was read of it, so that of several that claim at once one does.
//
// REQUIRES, everywhere: the client's turn at the turnstile.

import { isCodedError } from "../base/index.ts";
import type { MapWrite } from "../store/index.ts";
import type { ConnectRequest, SessionLink, Will } from "./api.ts";
import type { SessionContext } from "./context.ts";
import {
  type ClaimRecord,
  encodeClaim,
  encodeCursor,
  encodeIds,
  encodeLive,
  encodeWill,
} from "./core/records.ts";
import { type Horizon, Reservation } from "./core/reservation.ts";
import { type DetachDurable, DurableSession } from "./durable.ts";
import { sessionKeys } from "./keys.ts";
import type { BuiltWrites, StateWriter } from "./state-writer.ts";
import { deleteKey, guarded, guardsOf, type StoredSession } from "./stored-session.ts";
import type { Timeline } from "./timeline.ts";
import type { MarkedWill, WillFirer } from "./wills.ts";

export type ClaimingParts = {
  readonly context: SessionContext;
  readonly timeline: Timeline;
  readonly wills: WillFirer;
  readonly detach: DetachDurable;
  readonly created: () => void;
};

export type Resumed = {
  readonly session: DurableSession;
  readonly marked: MarkedWill | undefined;
};

/** What is written to take a session from its owner without his help. */
export type FencedClaim = Pick<StoredSession, "keys" | "epoch" | "claim">;

/** Each takes as long as the store waits for a leader: its client has given up before. */
const attemptsMax = 4;

export class Claiming {
  readonly #parts: ClaimingParts;

  constructor(parts: ClaimingParts) {
    this.#parts = parts;
  }

  async create(request: ConnectRequest, link: SessionLink): Promise<DurableSession> {
    const { context, created } = this.#parts;
    const keys = sessionKeys(request.clientId);
    const claim = this.#claimRecord(request, 0);
    const cursor = context.store.tail();
    const reservation = this.#createReservation(link, undefined);
    const ids = reservation.renewal(this.#horizon(), cursor);
    const writes: MapWrite[] = [
      { key: keys.cursor, value: encodeCursor({ positions: cursor, dropped: 0 }) },
      { key: keys.ids, value: encodeIds(ids) },
      ...this.#ownerWrites(request),
      { key: keys.claim, value: encodeClaim(claim) },
    ];
    const guards = [{ key: keys.claim, timeUs: undefined }];
    const epoch = await this.#claim(request.clientId, { writes, guards });
    reservation.committed(ids);
    created();
    context.counters.sessionsCreated++;
    const stored: StoredSession = {
      keys,
      claim,
      epoch,
      incarnation: epoch,
      closed: undefined,
      closedAtUs: undefined,
      will: undefined,
      cursor,
      dropped: 0,
      ids: undefined,
      subscriptions: [],
      inFlight: [],
      jobs: [],
      allKeys: [],
    };
    return this.#session(request, link, stored, reservation);
  }

  async resume(
    request: ConnectRequest,
    link: SessionLink,
    stored: StoredSession,
    willToFire: Will | undefined,
  ): Promise<Resumed> {
    const { context, wills } = this.#parts;
    const { keys } = stored;
    await this.#reachLogs(stored);
    await context.groups.resolve(request.clientId, stored.inFlight);
    const claim = this.#claimRecord(request, stored.incarnation);
    const reservation = this.#createReservation(link, stored);
    const ids = reservation.renewal(this.#horizon(), stored.cursor);
    const fire =
      willToFire === undefined ? undefined : wills.mark(stored.claim, stored.epoch, willToFire);
    const writes: MapWrite[] = [
      { key: keys.ids, value: encodeIds(ids) },
      ...(stored.closed === undefined ? [] : [deleteKey(keys.due(stored.closed.dueUs))]),
      ...(fire === undefined ? [] : [fire.write]),
      ...this.#ownerWrites(request),
      // Last: a write that is cut in parts (a huge will) takes effect with what it is guarded by.
      { key: keys.claim, value: encodeClaim(claim) },
      deleteKey(keys.closed),
    ];
    const epoch = await this.#claim(request.clientId, { writes, guards: guardsOf(stored) });
    reservation.committed(ids);
    context.counters.sessionsResumed++;
    const session = this.#session(request, link, { ...stored, claim, epoch }, reservation);
    return { session, marked: fire?.marked };
  }

  /** What another node has dispatched is applied here too before it is read on or sent again. */
  async #reachLogs({ cursor, inFlight }: StoredSession): Promise<void> {
    const { store } = this.#parts.context;
    if (!store.isShared) return;
    const tail = store.tail();
    const behind = new Set<number>();
    const note = (shard: number, timeUs: number): void => {
      if (timeUs > (tail.get(shard) ?? timeUs)) behind.add(shard);
    };
    for (const [shard, timeUs] of cursor) note(shard, timeUs);
    for (const { record } of inFlight) {
      if (record.source.kind === "log") note(record.source.ref.shard, record.source.ref.timeUs);
    }
    await Promise.all([...behind].map((shard) => store.barrier(shard)));
  }

  /** From here on nothing is taken of whoever has owned the session until now. Its new epoch. */
  fence({ keys, epoch, claim }: FencedClaim): Promise<number> {
    const { clientId, user, owner, bootUs } = claim;
    const writes: MapWrite[] = [{ key: keys.claim, value: encodeClaim(claim) }];
    if (owner !== undefined) {
      writes.push({ key: keys.live, value: encodeLive({ clientId, user, owner, bootUs }) });
    }
    return this.#writer(clientId).write(() => guarded(keys, epoch, writes));
  }

  /** The commit time of the claim. One whose fate is not known is looked for behind a barrier. */
  async #claim(clientId: string, built: BuiltWrites): Promise<number> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#writer(clientId).write(() => built);
      } catch (error) {
        if (!isCodedError(error, "STORE_FATE_UNKNOWN") || attempt === attemptsMax) throw error;
        this.#parts.context.counters.claimsUnknown++;
        const madeUs = await this.#madeAtUs(clientId, built);
        if (madeUs !== undefined) return madeUs;
      }
    }
  }

  /** Undefined: it has not happened. No other claim writes the same: reservations name a moment. */
  async #madeAtUs(clientId: string, { writes }: BuiltWrites): Promise<number | undefined> {
    const shard = this.#parts.context.store.state(clientId);
    await shard.barrier();
    const keys = sessionKeys(clientId);
    let timeUs: number | undefined;
    for (const key of [keys.ids, keys.claim]) {
      const entry = await shard.get(key);
      const wanted = writes.find((write) => write.key === key)?.value;
      if (entry === undefined || wanted === undefined || !entry.value.equals(wanted))
        return undefined;
      timeUs = entry.timeUs;
    }
    return timeUs;
  }

  #session(
    request: ConnectRequest,
    link: SessionLink,
    stored: StoredSession,
    reservation: Reservation,
  ): DurableSession {
    const { expiryS, will } = request;
    const claimed = { stored, expiryS, will, reservation };
    return new DurableSession(this.#parts.context, claimed, link, this.#parts.detach);
  }

  #claimRecord(request: ConnectRequest, incarnation: number): ClaimRecord {
    const { clientId, user, protocol, expiryS } = request;
    const { owner } = this.#parts.context;
    const bootUs = this.#parts.timeline.startedUs;
    return { clientId, user, owner, protocol, expiryS, incarnation, bootUs, removing: false };
  }

  #ownerWrites(request: ConnectRequest): MapWrite[] {
    const { clientId, user, will } = request;
    const keys = sessionKeys(clientId);
    const { owner } = this.#parts.context;
    const bootUs = this.#parts.timeline.startedUs;
    return [
      { key: keys.live, value: encodeLive({ clientId, user, owner, bootUs }) },
      { key: keys.will, value: will === undefined ? undefined : encodeWill(will) },
    ];
  }

  #horizon(): Horizon {
    const { store, clock } = this.#parts.context;
    return { tail: store.tail(), wallUs: clock.wallUs() };
  }

  #createReservation(link: SessionLink, stored: StoredSession | undefined): Reservation {
    const { inflightMax, sentAheadMs } = this.#parts.context.settings;
    const windowMax = Math.min(inflightMax, link.receiveMaximum);
    return new Reservation({ windowMax, sentAheadUs: sentAheadMs * 1000 }, stored?.ids);
  }

  #writer(clientId: string): StateWriter {
    const { context } = this.#parts;
    return context.checkpointer(context.store.state(clientId)).writer;
  }
}
