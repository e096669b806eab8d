// Appends and QoS 2 evidence over several log databases.
//
// A message with evidence whose topic is routed to another database takes two entries: the evidence
// in the publisher's shard of `messages` first, marked as routed, then message and evidence in the
// other database. A repeat redoes the second one, whose own evidence knows whether it is there. A
// release goes the other way round: `messages` is the last to forget. What was stored before its
// topic was routed elsewhere is not routed, and a repeat of it stores nothing.

import type { AppendDone, AppendRequest, EvidenceFace, PublisherClaim } from "./api.ts";
import type { LogFront } from "./fronts.ts";

export type EvidenceRouterParts = {
  /** The publisher's shard of `messages`. */
  readonly home: (publisher: string) => LogFront;
  /** The publisher's shards of all other log databases. */
  readonly others: (publisher: string) => readonly LogFront[];
};

/** An append that waits for those before it, or for its evidence. */
type Step = { isReady: boolean; run: () => void };

type Claimed = { claim: PublisherClaim; opens: number };

export class EvidenceRouter implements EvidenceFace {
  readonly #parts: EvidenceRouterParts;
  /** Publishers that are open, to open them in databases that are made later. */
  readonly #claims = new Map<string, Map<number, Claimed>>();

  /** By publisher, while evidence is on its way: bounded by what the publisher may have in flight. */
  readonly #queues = new Map<string, Step[]>();

  constructor(parts: EvidenceRouterParts) {
    this.#parts = parts;
  }

  async open(publisher: string, claim: PublisherClaim): Promise<void> {
    await this.#parts.home(publisher).openEvidence(publisher, claim);
    this.#note(publisher, claim);
    for (const log of this.#parts.others(publisher)) await log.openEvidence(publisher, claim);
  }

  list(publisher: string, claim: PublisherClaim): number[] {
    return this.#parts.home(publisher).listEvidence(publisher, claim);
  }

  close(publisher: string, claim: PublisherClaim): void {
    for (const log of this.#all(publisher)) log.closeEvidence(publisher, claim);
    const claims = this.#claims.get(publisher);
    const claimed = claims?.get(claim.incarnation);
    if (claims === undefined || claimed === undefined || --claimed.opens > 0) return;
    claims.delete(claim.incarnation);
    if (claims.size === 0) this.#claims.delete(publisher);
  }

  async end(publisher: string, incarnation: number): Promise<void> {
    for (const log of this.#parts.others(publisher)) await log.endEvidence(publisher, incarnation);
    await this.#parts.home(publisher).endEvidence(publisher, incarnation);
  }

  readonly release: EvidenceFace["release"] = (publisher, claim, packetId, done) => {
    const item = { publisher, ...claim, packetId };
    const away = this.#parts.others(publisher).filter((log) => log.isTaken(item));
    const next = (): void => {
      const log = away.shift();
      if (log === undefined) {
        this.#parts.home(publisher).release(item, done);
        return;
      }
      log.release(item, (error) => (error === undefined ? next() : done(error, false)));
    };
    next();
  };

  /** A database was made: whoever is open is open in it too. */
  async cover(logOf: (publisher: string) => LogFront): Promise<void> {
    for (const [publisher, claims] of [...this.#claims]) {
      for (const { claim, opens } of claims.values()) {
        for (let left = opens; left > 0; left--) {
          await logOf(publisher).openEvidence(publisher, claim);
        }
      }
    }
  }

  /** To a shard that is not in `messages`; in the order of the calls for each publisher. */
  appendAway(request: AppendRequest, target: LogFront, done: AppendDone): void {
    const { publisher, evidence } = request;
    const queue = this.#queues.get(publisher);
    if (evidence === undefined && queue === undefined) {
      target.append(request, done);
      return;
    }
    const step: Step = { isReady: evidence === undefined, run: () => target.append(request, done) };
    this.#queues.set(publisher, queue ?? []);
    this.#queues.get(publisher)?.push(step);
    if (evidence !== undefined) this.#claimAtHome(request, evidence, step, done);
  }

  #claimAtHome(
    request: AppendRequest,
    evidence: NonNullable<AppendRequest["evidence"]>,
    step: Step,
    done: AppendDone,
  ): void {
    const { publisher } = request;
    const home = this.#parts.home(publisher);
    const item = { publisher, ...evidence };
    const isStoredHere = home.isTaken(item) && !home.isRouted(item);
    const claim = { ...request, keep: false, evidence: { ...evidence, routed: !isStoredHere } };
    home.append(claim, (error, outcome) => {
      if (error !== undefined || isStoredHere) step.run = () => done(error, outcome);
      step.isReady = true;
      this.#drain(publisher);
    });
  }

  #drain(publisher: string): void {
    const queue = this.#queues.get(publisher);
    while (queue?.[0]?.isReady === true) queue.shift()?.run();
    if (queue?.length === 0) this.#queues.delete(publisher);
  }

  #all(publisher: string): readonly LogFront[] {
    return [...this.#parts.others(publisher), this.#parts.home(publisher)];
  }

  #note(publisher: string, claim: PublisherClaim): void {
    const claims = this.#claims.get(publisher) ?? new Map<number, Claimed>();
    this.#claims.set(publisher, claims);
    const claimed = claims.get(claim.incarnation);
    if (claimed === undefined) claims.set(claim.incarnation, { claim, opens: 1 });
    else Object.assign(claimed, { claim, opens: claimed.opens + 1 });
  }
}
