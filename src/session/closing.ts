// How durable sessions close, fire their wills and end. Every step is one guarded write that holds
// all it decides; what follows from it (publishing a marked will) comes after the write.
//
// REQUIRES, everywhere: the client's turn at the turnstile.

import { isCodedError, sleep } from "../base/index.ts";
import type { MapWrite } from "../store/index.ts";
import type { DetachCause, Will } from "./api.ts";
import type { SessionContext } from "./context.ts";
import { deadlines } from "./core/deadline.ts";
import { encodeClaim, encodeClosed, encodeDue } from "./core/records.ts";
import type { DurableSession } from "./durable.ts";
import { interestOf } from "./groups/interest.ts";
import {
  deleteKey,
  guarded,
  guardsOf,
  readStoredSession,
  removeStoredSession,
  type StoredSession,
} from "./stored-session.ts";
import type { Timeline } from "./timeline.ts";
import type { MarkedWill, WillFirer } from "./wills.ts";

export type ClosingOptions = {
  readonly context: SessionContext;
  readonly timeline: Timeline;
  readonly wills: WillFirer;
  /** A deadline was stored in the state shard of this client. */
  readonly armed: (clientId: string, dueUs: number) => void;
  readonly removed: () => void;
};

/** Attempts of a closing write before it is left to the next start, which takes it for a crash. */
const attemptsMax = 8;

export class Closing {
  readonly #options: ClosingOptions;

  constructor(options: ClosingOptions) {
    this.#options = options;
  }

  /** The connection has ended. REQUIRES: the session is stopped and still the owner. */
  async close(session: DurableSession, cause: DetachCause): Promise<void> {
    if (cause.kind === "shutdown") {
      await this.#closeForShutdown(session);
      return;
    }
    const expiryS = cause.expiryS ?? session.expiryS;
    if (expiryS === 0) {
      await this.commit(session);
      const stored = await readStoredSession(this.#shard(session.clientId), session.clientId);
      if (stored !== undefined) await this.remove(stored, cause.kind === "lost");
      return;
    }
    await this.#closeWith(session, expiryS, cause.kind === "lost" ? session.will : undefined);
  }

  /** Writes the exact state of a session that is stopped and about to be taken over or ended. */
  commit(session: DurableSession): Promise<void> {
    return this.#commitWith(session, () => []);
  }

  /** Removes a session; its will, if there is one and `fireWill` says so, is published. */
  async remove(stored: StoredSession, fireWill: boolean): Promise<void> {
    const { context, wills, removed } = this.#options;
    const { clientId } = stored.claim;
    const fire =
      fireWill && stored.will !== undefined
        ? wills.mark(stored.claim, stored.epoch, stored.will)
        : undefined;
    await removeStoredSession({
      isShared: context.owner !== undefined,
      dropsWill: !fireWill,
      store: context.store,
      interest: interestOf(context, clientId),
      writer: this.#writer(clientId),
      session: stored,
      lastWrites: fire === undefined ? [] : [fire.write],
    });
    context.counters.sessionsRemoved++;
    removed();
    context.table.removed(clientId);
    await context.groups.resolve(clientId, []);
    if (fire !== undefined) await wills.publish(fire.marked);
  }

  /**
   * Does what has fallen due for a session without connection: fires its will, removes it, or stores
   * its next deadline. `lostUs`: when its connection ended, where nothing says so; the start, if not
   * given.
   */
  async settle(stored: StoredSession, lostUs?: number): Promise<void> {
    const { timeline, context } = this.#options;
    if (stored.claim.removing) {
      await this.remove(stored, true);
      return;
    }
    const closedUs = stored.closed?.closedUs ?? lostUs ?? timeline.startedUs;
    const expiryS = stored.closed?.expiryS ?? stored.claim.expiryS;
    const due = deadlines(closedUs, expiryS, stored.will?.delayS);
    if (timeline.hasPassed(due.expireUs)) {
      context.counters.sessionsExpired++;
      await this.remove(stored, true);
      return;
    }
    const isWillDue = due.willUs !== undefined && timeline.hasPassed(due.willUs);
    await this.#storeClosed(stored, { closedUs, expiryS }, isWillDue ? stored.will : undefined);
  }

  /** By the clock of wills and expiries. */
  nowUs(): number {
    return this.#options.timeline.nowUs();
  }

  /** The session is past its expiry: nobody may resume it. */
  isExpired(stored: StoredSession): boolean {
    const { closed, claim, will } = stored;
    if (claim.removing) return true;
    if (closed === undefined) return false;
    const { expireUs } = deadlines(closed.closedUs, closed.expiryS, will?.delayS);
    return this.#options.timeline.hasPassed(expireUs);
  }

  async #closeForShutdown(session: DurableSession): Promise<void> {
    // It stays under `live/`: the next start gives the client its grace.
    const closedUs = this.#options.timeline.nowUs();
    const value = encodeClosed({ closedUs, expiryS: session.expiryS, dueUs: 0 });
    await this.#commitWith(session, () => [{ key: session.keys.closed, value }]);
  }

  async #closeWith(
    session: DurableSession,
    expiryS: number,
    will: Will | undefined,
  ): Promise<void> {
    const { timeline, wills, armed, context } = this.#options;
    const { clientId, user, keys } = session;
    const closedUs = timeline.nowUs();
    const isDueNow = will !== undefined && will.delayS === 0;
    const fire = isDueNow ? wills.mark(session, session.epoch, will) : undefined;
    const waits = will !== undefined && !isDueNow;
    const { nextUs } = deadlines(closedUs, expiryS, waits ? will.delayS : undefined);
    const { incarnation } = session.claim;
    await this.#commitWith(session, () => [
      { key: keys.closed, value: encodeClosed({ closedUs, expiryS, dueUs: nextUs }) },
      {
        key: keys.due(nextUs),
        value: encodeDue({ clientId, user, incarnation, ...session.closedState }),
      },
      deleteKey(keys.live),
      ...(waits ? [] : [deleteKey(keys.will)]),
      ...(fire === undefined ? [] : [fire.write]),
    ]);
    context.table.closed(clientId, session.closedState);
    armed(clientId, nextUs);
    if (fire !== undefined) await wills.publish(fire.marked);
  }

  async #storeClosed(
    stored: StoredSession,
    close: { closedUs: number; expiryS: number },
    dueWill: Will | undefined,
  ): Promise<void> {
    const { wills, armed, context } = this.#options;
    const { keys, claim, epoch, incarnation, cursor, dropped } = stored;
    const state = { cursor, inFlight: stored.inFlight.length, dropped };
    const { clientId, user } = claim;
    let marked: MarkedWill | undefined;
    const writes: MapWrite[] = [];
    if (dueWill !== undefined) {
      const fire = wills.mark(claim, epoch, dueWill);
      marked = fire.marked;
      writes.push(fire.write, deleteKey(keys.will));
    }
    const delayS = dueWill === undefined ? stored.will?.delayS : undefined;
    const { nextUs } = deadlines(close.closedUs, close.expiryS, delayS);
    if (stored.closed !== undefined) writes.push(deleteKey(keys.due(stored.closed.dueUs)));
    writes.push(
      { key: keys.due(nextUs), value: encodeDue({ clientId, user, incarnation, ...state }) },
      deleteKey(keys.live),
    );
    // Its owner counts as dead: should it be alive, it hears so from its next write.
    if (stored.closed === undefined && claim.owner !== undefined) {
      const value = encodeClaim({ ...claim, incarnation, owner: undefined });
      writes.push({ key: keys.claim, value });
    }
    // Last, as in a claim: what it is guarded by.
    writes.push({ key: keys.closed, value: encodeClosed({ ...close, dueUs: nextUs }) });
    await this.#writer(clientId).write(() => ({ writes, guards: guardsOf(stored) }));
    context.table.closed(clientId, state);
    armed(clientId, nextUs);
    if (marked !== undefined) await wills.publish(marked);
  }

  /** The exact state of a stopped session and more, in one write; tried again while it may help. */
  async #commitWith(session: DurableSession, more: () => MapWrite[]): Promise<void> {
    const { clock, settings, counters, logger } = this.#options.context;
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#commitOnce(session, more);
        return;
      } catch (error) {
        if (attempt >= attemptsMax || isFinal(error)) throw error;
        counters.writesFailed++;
        logger.warn("session.close_failed", { clientId: session.clientId, attempt, error });
        const delayMs = settings.retryDelayMs * 2 ** (attempt - 1);
        await sleep(clock, Math.min(delayMs, settings.retryDelayMsMax));
      }
    }
  }

  #commitOnce(session: DurableSession, more: () => MapWrite[]): Promise<void> {
    return new Promise((resolve, reject) => {
      let settle: ReturnType<DurableSession["collectExact"]>["settle"] | undefined;
      this.#writer(session.clientId).submit({
        build: () => {
          if (session.abandoned) return undefined;
          const exact = session.collectExact();
          settle = exact.settle;
          return guarded(session.keys, session.epoch, [...exact.writes, ...more()]);
        },
        done: (error) => {
          settle?.(error);
          if (error === undefined) resolve();
          else reject(error);
        },
      });
    });
  }

  #shard(clientId: string) {
    return this.#options.context.store.state(clientId);
  }

  #writer(clientId: string) {
    return this.#options.context.checkpointer(this.#shard(clientId)).writer;
  }
}

/** Trying again cannot help: the claim is lost, or the store takes nothing more before a restart. */
function isFinal(error: unknown): boolean {
  if (!isCodedError(error)) return false;
  if (error.kind === "closed" || error.kind === "conflict") return true;
  return error.code === "STORE_GUARD_FAILED" || error.code === "STORE_FAILED";
}
