// Sessions whose client ids may be in use at other nodes of a cluster (decision 093).
//
// Keeps
// - A CONNECT reads what every node has been acked, after whoever used its client id elsewhere has
//   stopped and written its state, or did not answer in time. Who did not answer is fenced before its
//   state is read: what it writes afterwards is refused.
// - A session that has left its connection for another node is closed, as a lost one, unless somebody
//   claims it in a while: no session waits for its end for ever.
// - A session here that another node has claimed ends its connection with 0x8E: at its next write,
//   which is refused, or when the row of the other claim is applied here.
//
// A node by itself has none of this.

import { isCodedError } from "../../base/index.ts";
import type { MapShard } from "../../store/index.ts";
import type { ConnectOutcome, ConnectRequest } from "../api.ts";
import type { Claiming } from "../claiming.ts";
import type { Closing } from "../closing.ts";
import type { SessionContext } from "../context.ts";
import {
  decodeOperation,
  decodeRelease,
  encodeOperation,
  encodeRelease,
  type Operation,
  operated,
  type Release,
  released as releasedAs,
} from "../core/node-words.ts";
import type { LiveRecord, Owner } from "../core/records.ts";
import type { DurableSession } from "../durable.ts";
import { sessionErrors } from "../errors.ts";
import { sessionKeys } from "../keys.ts";
import type { MemorySession } from "../memory.ts";
import type { SessionNodes } from "../nodes.ts";
import { readStoredSession, type StoredSession } from "../stored-session.ts";
import type { Timeline } from "../timeline.ts";
import type { SessionTimers } from "../timers.ts";
import type { Turnstile } from "../turnstile.ts";
import type { WillFirer } from "../wills.ts";
import { KnownSessions } from "./known-sessions.ts";
import { type Coming, Presence } from "./presence.ts";
import { Sweeps } from "./sweeps.ts";

export type AttachedSession = DurableSession | MemorySession;

export type AcrossParts = {
  readonly context: SessionContext;
  readonly nodes: SessionNodes;
  readonly turnstile: Turnstile;
  readonly closing: Closing;
  readonly claiming: Claiming;
  readonly timeline: Timeline;
  readonly timers: SessionTimers;
  readonly wills: WillFirer;
  readonly attached: ReadonlyMap<string, AttachedSession>;
  /** It is stopped, and attached no more; its will goes its way if it has no record. */
  readonly dropped: (session: AttachedSession) => Promise<void>;
  /** What an operator asks for at another node; undefined where the session is not attached. */
  readonly operated: (operation: Operation) => Promise<boolean | undefined>;
};

const sessionTakenOver = 0x8e;
const releaseKind = "session.release";
const operateKind = "session.operate";
/** An operator waits for a write there. */
const operateMs = 15_000;
/** Claims of one CONNECT that other nodes are faster with. */
const attemptsMax = 8;
/** A session that was left for another node is not claimed any more after it: a CONNECT waits less. */
const unclaimedMsMax = 20_000;

/** What is known of the session before that a CONNECT meets. */
export type Cleared = {
  /** Its owner has stopped, and all of its state is written. */
  readonly isReleased: boolean;
};

export class Across {
  readonly #parts: AcrossParts;
  readonly #presence: Presence;
  readonly #sweeps: Sweeps;
  readonly #known: KnownSessions;
  #isStopped = false;

  constructor(parts: AcrossParts) {
    this.#parts = parts;
    const { nodes, attached } = parts;
    this.#presence = new Presence({
      ...{ context: parts.context, nodes },
      arrivedUs: (clientId) => attached.get(clientId)?.arrivedUs,
      inMemory: function* () {
        for (const session of attached.values()) if (!session.durable) yield session;
      },
      displaced: (clientId) => this.#displace(clientId),
    });
    this.#sweeps = new Sweeps(parts);
    this.#known = new KnownSessions({
      context: parts.context,
      isOwn: (owner) => this.#isOwn(owner),
      owned: (shard, record) => this.#owned(shard, record),
    });
    nodes.handle(releaseKind, (from, bytes) => this.#onRelease(from, bytes));
    nodes.handle(operateKind, (_, bytes) => this.#onOperate(bytes));
    nodes.onPeersChanged((node, isReached) => {
      if (isReached) this.#settle(node);
    });
  }

  /** Before the store serves: resolves when the sessions of the shard are known. */
  async follow(shard: MapShard): Promise<void> {
    await this.#known.follow(shard);
  }

  start(): void {
    this.#sweeps.start();
  }

  stop(): void {
    this.#isStopped = true;
    this.#sweeps.stop();
  }

  /** Runs `connect` as often as another node is faster with its claim. REQUIRES: the client's turn. */
  async connect(
    request: ConnectRequest,
    connect: (cleared: Cleared) => Promise<ConnectOutcome>,
  ): Promise<ConnectOutcome> {
    const { context, attached } = this.#parts;
    const { clientId } = request;
    const coming = this.#presence.comes(clientId);
    try {
      for (let attempt = 1; ; attempt++) {
        const cleared = await this.#clear(coming, request);
        try {
          const outcome = await connect(cleared);
          const session = attached.get(clientId);
          const taken = { ...outcome, tookOver: cleared.isReleased };
          if (session === undefined) return taken;
          session.arrivedUs = coming.arrivedUs;
          if (session.durable) await this.#checkClaim(session);
          if (!coming.isOvertaken) return taken;
          await this.#leave(session);
        } catch (error) {
          const isLost = isCodedError(error, "STORE_GUARD_FAILED");
          if (!isLost || attempt === attemptsMax) throw error;
          context.counters.claimsLost++;
          continue;
        }
        throw this.#overtaken(clientId);
      }
    } finally {
      this.#presence.left(coming);
    }
  }

  /**
   * Makes sure of a session that is read as having a connection: its owner has stopped, or whatever it
   * writes is refused. Returns it as it stands then.
   */
  async secured(
    stored: StoredSession,
    { isReleased }: Cleared,
  ): Promise<StoredSession | undefined> {
    if (stored.closed !== undefined || stored.claim.removing || isReleased) return stored;
    const { context, claiming } = this.#parts;
    const { clientId } = stored.claim;
    context.counters.takeoversUnanswered++;
    const { incarnation, claim, keys, epoch } = stored;
    const { owner } = context;
    // Whoever looks for sessions of dead nodes finds it with this one from now on.
    const fenced = await claiming.fence({ keys, epoch, claim: { ...claim, incarnation, owner } });
    this.#closeUnlessClaimed(clientId, fenced);
    return readStoredSession(context.store.state(clientId), clientId);
  }

  /** Whether the process that made this claim can be asked: then its connection was taken over. */
  isAlive(owner: Owner | undefined): boolean {
    const { nodes } = this.#parts;
    if (owner === undefined) return false;
    return this.#isOwn(owner) || nodes.startOf(owner.node) === owner.start;
  }

  /**
   * Undefined: its node serves it no more, or is gone for good. Rejects where the node that may still
   * serve it cannot be asked.
   */
  async operate(owner: Owner, operation: Operation): Promise<boolean | undefined> {
    const { nodes } = this.#parts;
    const start = nodes.startOf(owner.node);
    if (start !== undefined && start !== owner.start) return undefined;
    const bytes = encodeOperation(operation);
    const [answer] = await nodes.ask(owner.node, operateKind, bytes, operateMs);
    return answer === operated.elsewhere ? undefined : answer === operated.done;
  }

  async #onOperate(bytes: Uint8Array): Promise<Uint8Array> {
    const operation = decodeOperation(bytes);
    const done = operation && (await this.#parts.operated(operation));
    if (done === undefined) return Uint8Array.of(operated.elsewhere);
    return Uint8Array.of(done ? operated.done : operated.nothing);
  }

  // -------------------------------------------------------------- coming

  /** Nobody else uses the client id, as far as others can be asked, and reads see what they wrote. */
  async #clear(coming: Coming, request: ConnectRequest): Promise<Cleared> {
    const { context } = this.#parts;
    const { clientId, user } = request;
    const shard = context.store.state(clientId);
    const known = shard.barrier()?.then(
      () => undefined,
      (error: unknown) => error,
    );
    const users = await this.#presence.users(coming);
    if (coming.isOvertaken) throw this.#overtaken(clientId);
    let failure = await known;
    let isReleased = false;
    if (users.length > 0) {
      const { arrivedUs } = coming;
      const release = { clientId, arrivedUs, user };
      const asking = Promise.all(users.map((node) => this.#ask(node, release)));
      // Who has overtaken it may be waiting for it in turn.
      const answers = await Promise.race([asking, overtaken(coming)]);
      if (answers === undefined) throw this.#overtaken(clientId);
      if (answers.includes(releasedAs.refused)) {
        context.counters.usersRefused++;
        throw sessionErrors.userMismatch({ clientId: JSON.stringify(clientId) });
      }
      isReleased = answers.includes(releasedAs.released);
      failure = await shard.barrier()?.then(
        () => undefined,
        (error: unknown) => error,
      );
    }
    if (coming.isOvertaken) throw this.#overtaken(clientId);
    // Without a quorum a session in memory is let in where nothing is known of another one.
    if (failure !== undefined && !(await this.#isInMemory(request))) throw failure;
    return { isReleased };
  }

  async #isInMemory({ clientId, expiryS }: ConnectRequest): Promise<boolean> {
    if (expiryS > 0 || this.#parts.attached.get(clientId)?.durable) return false;
    const shard = this.#parts.context.store.state(clientId);
    return (await shard.get(sessionKeys(clientId).claim)) === undefined;
  }

  async #ask(node: number, release: Release): Promise<number | undefined> {
    const { nodes, context } = this.#parts;
    const { takeoverWaitMs } = context.settings;
    try {
      const answer = await nodes.ask(node, releaseKind, encodeRelease(release), takeoverWaitMs);
      return answer[0];
    } catch (error) {
      if (!isCodedError(error)) throw error;
      const { clientId } = release;
      context.logger.warn("session.takeover_unanswered", { clientId, node, error });
      return undefined;
    }
  }

  #overtaken(clientId: string): Error {
    return sessionErrors.overtaken({ clientId: JSON.stringify(clientId) });
  }

  // -------------------------------------------------------------- leaving

  async #onRelease(from: number, bytes: Uint8Array): Promise<Uint8Array> {
    const release = decodeRelease(bytes);
    if (release === undefined) return Uint8Array.of(releasedAs.none);
    const { clientId, user } = release;
    const isClaimable = this.#presence.claimable(release, from);
    const answer = await this.#parts.turnstile.run(clientId, async () => {
      const session = this.#parts.attached.get(clientId);
      if (session === undefined || this.#isStopped) return releasedAs.none;
      if (!isClaimable(session.arrivedUs)) return releasedAs.none;
      if (session.user !== user) return releasedAs.refused;
      await this.#leave(session);
      return releasedAs.released;
    });
    return Uint8Array.of(answer);
  }

  /** Stops a session, writes its state and ends its connection. REQUIRES: the client's turn. */
  async #leave(session: AttachedSession): Promise<void> {
    const { closing, context, dropped } = this.#parts;
    const { clientId } = session;
    session.stop();
    try {
      if (session.durable) await closing.commit(session);
    } finally {
      context.counters.sessionsTakenOver++;
      session.endLink(sessionTakenOver);
      if (session.durable) this.#closeUnlessClaimed(clientId, session.epoch);
      await dropped(session);
    }
  }

  #displace(clientId: string): void {
    const { turnstile, attached, context } = this.#parts;
    const session = attached.get(clientId);
    if (session === undefined) return;
    const leaving = turnstile.run(clientId, async () => {
      if (attached.get(clientId) === session) await this.#leave(session);
    });
    leaving.catch((error: unknown) => {
      context.logger.warn("session.close_failed", { clientId, error });
    });
  }

  /** `epoch`: of the claim whose connection is gone. */
  #closeUnlessClaimed(clientId: string, epoch: number): void {
    const { context, turnstile, closing, attached } = this.#parts;
    const lostUs = closing.nowUs();
    context.clock.schedule(unclaimedMsMax, () => {
      const closed = turnstile.run(clientId, async () => {
        if (this.#isStopped || attached.has(clientId)) return;
        const stored = await readStoredSession(context.store.state(clientId), clientId);
        if (stored?.epoch !== epoch || stored.closed !== undefined) return;
        await closing.settle(stored, lostUs);
      });
      closed.catch((error: unknown) => {
        context.logger.warn("session.close_failed", { clientId, error });
        if (!isCodedError(error, "STORE_GUARD_FAILED") && !this.#isStopped) {
          this.#closeUnlessClaimed(clientId, epoch);
        }
      });
    });
  }

  // -------------------------------------------------------------- other claims

  #owned(shard: MapShard, { clientId, owner }: LiveRecord): void {
    this.#sweeps.owned(shard, owner);
    const { attached, context } = this.#parts;
    const session = attached.get(clientId);
    if (session === undefined || !session.durable || this.#isOwn(owner)) return;
    // Not within the apply.
    context.clock.soon(() => {
      if (attached.get(clientId) === session) this.#fence(session);
    });
  }

  async #checkClaim(session: DurableSession): Promise<void> {
    const { attached, context } = this.#parts;
    const { clientId, keys, epoch } = session;
    const entry = await context.store.state(clientId).get(keys.claim);
    if (entry?.timeUs !== epoch && attached.get(clientId) === session) this.#fence(session);
  }

  #fence(session: DurableSession): void {
    const { counters, logger } = this.#parts.context;
    counters.sessionsFenced++;
    logger.warn("session.fenced", { clientId: session.clientId });
    session.fenced();
  }

  #isOwn(owner: Owner | undefined): boolean {
    const { node, start } = this.#parts.nodes;
    return owner?.node === node && owner.start === start;
  }

  // -------------------------------------------------------------- after a time apart

  #settle(node: number): void {
    this.#presence.settle(node).catch((error: unknown) => {
      // It is told anew when the peer is reached the next time.
      this.#parts.context.logger.warn("session.presence_failed", { node, error });
    });
  }
}

function overtaken(coming: Coming): Promise<undefined> {
  return new Promise((resolve) => {
    coming.onOvertaken = () => resolve(undefined);
    if (coming.isOvertaken) resolve(undefined);
  });
}
