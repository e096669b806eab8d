// Requests of a node on their way to the leader of a shard: in batches, under a writer of the node,
// in order, and again from the first unanswered when an answer does not come or the leader changes.
//
// Keeps: one batch is under way at a time, and what comes meanwhile makes the next; a request keeps its
// sequence until it is answered, so that it counts once whoever takes it; its owner hears one answer,
// once the replica of this node shows what was decided.
// A request older than the limit is told to be of unknown fate, and stays until the leader answers:
// what a leader cannot take now (no quorum, quota, write buffer) is held back so long.
// Sans-IO: calls and ticks in, messages out.

import type { CodedError } from "../../base/index.ts";
import { type Decided, type ShardRequest, storeErrors } from "../../store/index.ts";
import type { ForwardMessage, Verdict } from "./forward-codec.ts";
import { ownedRequest, requestBytes } from "./request-codec.ts";

export type ForwardSettings = {
  /** Waiting requests of one shard; refused at the brim. */
  readonly requestsMax: number;
  readonly requestsBytesMax: number;
  readonly batchRequestsMax: number;
  readonly batchBytesMax: number;
  /** Without an answer for so long a message is sent again. */
  readonly answerMs: number;
  /** Then whoever waits is told that the fate is unknown. */
  readonly waitMs: number;
};

export const defaultForwardSettings: ForwardSettings = {
  requestsMax: 10_000,
  requestsBytesMax: 16 * 1024 * 1024,
  batchRequestsMax: 512,
  batchBytesMax: 512 * 1024,
  answerMs: 1_000,
  waitMs: 15_000,
};

type Waiting = {
  request: ShardRequest;
  readonly sinceMs: number;
  readonly bytes: number;
  /** Undefined once its owner has been told. */
  done: Decided | undefined;
};

/** Decided, and not yet applied by the replica of this node. */
type Landing = { readonly waiting: Waiting; readonly verdict: Verdict };

/** The replica of the shard at this node. */
export type LandingPlace = {
  /** Applied up to here. */
  appliedUs(): number;
  /** Calls `land` once it has applied this time. */
  awaits(timeUs: number): void;
};

/** Whom a message is for: the node that leads, 0 when none is known. */
export type SendForward = (to: number, message: ForwardMessage) => void;

export class ForwardQueue {
  readonly #shard: number;
  readonly #name: string;
  readonly #settings: ForwardSettings;
  readonly #send: SendForward;
  readonly #place: LandingPlace;
  readonly #landing: Landing[] = [];
  /** In order; the first has the sequence `#first`. */
  readonly #waiting: Waiting[] = [];
  #bytes = 0;
  /** Of the writer; undefined until it is opened. */
  #epoch: number | undefined;
  #first = 1;
  /** Requests under way; 0: none. */
  #sent = 0;
  #sentMs = 0;
  #token = 0;
  #isOpening = false;
  #leader = 0;

  constructor(
    { shard, name }: { readonly shard: number; readonly name: string },
    send: SendForward,
    place: LandingPlace,
    settings = defaultForwardSettings,
  ) {
    this.#shard = shard;
    this.#name = name;
    this.#send = send;
    this.#place = place;
    this.#settings = settings;
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  ask(request: ShardRequest, nowMs: number, done: Decided): void {
    const bytes = requestBytes(request);
    const { requestsMax, requestsBytesMax } = this.#settings;
    const isFull =
      this.#waiting.length + this.#landing.length >= requestsMax ||
      (this.#bytes > 0 && this.#bytes + bytes > requestsBytesMax);
    if (isFull) {
      return done(storeErrors.limitReached({ limit: "forwarded writes", max: requestsMax }), 0, 0);
    }
    this.#waiting.push({ request, sinceMs: nowMs, bytes, done });
    this.#bytes += bytes;
    this.#pump(nowMs);
  }

  /** The leader as far as this node knows; what is under way to another is sent again. */
  setLeader(node: number, nowMs: number): void {
    if (node === this.#leader) return;
    this.#leader = node;
    this.#again(nowMs);
  }

  tick(nowMs: number): void {
    const { answerMs, waitMs } = this.#settings;
    for (const waiting of [...this.#landing.map((each) => each.waiting), ...this.#waiting]) {
      if (nowMs - waiting.sinceMs < waitMs) break;
      this.#lose(waiting);
    }
    const isUnderWay = this.#isOpening || this.#sent > 0;
    if (isUnderWay && nowMs - this.#sentMs >= answerMs) this.#again(nowMs);
  }

  /** An answer, whenever it was sent. */
  receive(message: ForwardMessage, nowMs: number): void {
    if (message.kind === "opened") this.#opened(message, nowMs);
    else if (message.kind === "answers") this.#answered(message, nowMs);
  }

  /** The node stops: what is under way may yet happen. */
  close(): void {
    for (const { waiting } of this.#landing.splice(0)) this.#lose(waiting);
    for (const waiting of this.#waiting.splice(0)) this.#lose(waiting);
    this.#bytes = 0;
  }

  /** The replica of this node has applied more. */
  land(): void {
    const appliedUs = this.#place.appliedUs();
    for (let first = this.#landing[0]; first !== undefined; first = this.#landing[0]) {
      const { waiting, verdict } = first;
      if (verdict.timeUs > appliedUs) return;
      this.#landing.shift();
      this.#tell(waiting, undefined, verdict);
    }
  }

  #opened({ token, epoch }: { token: number; epoch: number }, nowMs: number): void {
    if (!this.#isOpening || token !== this.#token) return;
    this.#isOpening = false;
    this.#epoch = epoch;
    this.#first = 1;
    this.#pump(nowMs);
  }

  #answered(message: ForwardMessage & { kind: "answers" }, nowMs: number): void {
    const { epoch, first, verdicts, fenced } = message;
    if (epoch !== this.#epoch) return; // to an earlier writer
    for (const [at, verdict] of verdicts.entries()) {
      // Those before were answered already; nothing is answered that was not sent.
      if (first + at !== this.#first || this.#sent === 0) continue;
      const waiting = this.#waiting.shift() as Waiting;
      this.#first++;
      this.#sent--;
      this.#bytes -= waiting.bytes;
      this.#landing.push({ waiting, verdict });
    }
    this.land();
    const last = this.#landing.at(-1);
    if (last !== undefined) this.#place.awaits(last.verdict.timeUs);
    if (fenced) this.#reopen();
    // What the leader did not take is sent again when the time is up.
    if (this.#sent === 0) this.#pump(nowMs);
  }

  // Its sequences are forgotten there: what is unanswered may have happened, and is not repeated.
  #reopen(): void {
    for (const waiting of this.#waiting.splice(0, this.#sent)) {
      this.#bytes -= waiting.bytes;
      this.#lose(waiting);
    }
    this.#sent = 0;
    this.#epoch = undefined;
  }

  #again(nowMs: number): void {
    const isOpening = this.#isOpening;
    this.#isOpening = false;
    if (isOpening) return this.#pump(nowMs);
    if (this.#sent > 0) this.#sendBatch(this.#sent, nowMs);
    else this.#pump(nowMs);
  }

  #pump(nowMs: number): void {
    if (this.#leader === 0 || this.#isOpening || this.#sent > 0) return;
    if (this.#waiting.length === 0) return;
    if (this.#epoch === undefined) {
      this.#isOpening = true;
      this.#sentMs = nowMs;
      this.#send(this.#leader, { kind: "open", token: ++this.#token, name: this.#name });
      return;
    }
    const { batchRequestsMax, batchBytesMax } = this.#settings;
    let count = 0;
    let bytes = 0;
    for (const waiting of this.#waiting) {
      bytes += waiting.bytes;
      if (count > 0 && (count >= batchRequestsMax || bytes > batchBytesMax)) break;
      count++;
    }
    this.#sendBatch(count, nowMs);
  }

  #sendBatch(count: number, nowMs: number): void {
    this.#sent = count;
    this.#sentMs = nowMs;
    const epoch = this.#epoch;
    if (this.#leader === 0 || epoch === undefined) return;
    const requests = this.#waiting.slice(0, count).map(({ request }) => request);
    const place = { name: this.#name, epoch, first: this.#first };
    this.#send(this.#leader, { kind: "batch", ...place, requests });
  }

  #lose(waiting: Waiting): void {
    if (waiting.done === undefined) return;
    // It may stay, and what was lent goes back to its owner.
    waiting.request = ownedRequest(waiting.request);
    this.#tell(waiting, storeErrors.fateUnknown({ shard: this.#shard }), { timeUs: 0, refusal: 0 });
  }

  #tell(waiting: Waiting, error: CodedError | undefined, { timeUs, refusal }: Verdict): void {
    const { done } = waiting;
    waiting.done = undefined;
    done?.(error, timeUs, refusal);
  }
}
