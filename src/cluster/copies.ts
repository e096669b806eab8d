// Copies between the replicas of a node's shards and those of other nodes: questions of this node go
// out, those of others are answered from what is here.
//
// Keeps: what arrives is checked and never trusted; the rows of a shard store are held for one asking a
// shard and node, and not for long; a hash that takes long is worked on once.

import { type Clock, isCodedError, type Logger, toError } from "../base/index.ts";
import type { CopySource } from "../store/index.ts";
import {
  type CopyAnswer,
  type CopyQuestion,
  type CopyRow,
  decodeCopyMessage,
  encodeCopyMessage,
  isCopyMessage,
} from "./core/copy-codec.ts";
import type { ClusterCounters } from "./counters.ts";
import { type CopySettings, defaultCopySettings, RemoteCopy } from "./remote-copy.ts";

export type CopiesParts = {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly counters: ClusterCounters;
  readonly settings?: CopySettings | undefined;
  readonly send: (shard: number, to: number, bytes: Uint8Array) => void;
  /** What the shard here gives; undefined while it is not open. */
  readonly supplyOf: (shard: number) => CopySource | undefined;
};

/** Rows of a shard store that another node asked for, page by page. */
type Held = { readonly token: number; readonly rows: readonly CopyRow[] };

const heldMs = 60_000;
const pageBytesMax = 256 * 1024;
/** A hash that is not there by then is asked for again. */
const hashWaitMs = 200;

export class Copies {
  readonly #parts: CopiesParts;
  readonly #sources = new Map<number, RemoteCopy>();
  /** By shard and node. */
  readonly #held = new Map<string, Held>();
  #lastId = 0;

  constructor(parts: CopiesParts) {
    this.#parts = parts;
  }

  /** The replica of `shard` at `node`. One copy of a shard at a time. */
  from(shard: number, node: number): RemoteCopy {
    const { clock, settings = defaultCopySettings } = this.#parts;
    const source = new RemoteCopy({
      ...{ clock, settings, node, nextId: () => ++this.#lastId },
      send: (id, question) => {
        this.#parts.counters.copyQuestions++;
        const bytes = encodeCopyMessage({ kind: "question", id, question });
        this.#parts.send(shard, node, bytes);
      },
    });
    this.#sources.set(shard, source);
    return source;
  }

  /** False when the message is not about copies. */
  receive(shard: number, from: number, bytes: Uint8Array): boolean {
    if (!isCopyMessage(bytes)) return false;
    const { counters, logger } = this.#parts;
    const message = decodeCopyMessage(bytes);
    if (message === undefined) {
      counters.copiesBroken++;
    } else if (message.kind === "answer") {
      if (message.answer.kind === "rows") counters.copyBytesTaken += bytes.length;
      this.#sources.get(shard)?.receive(message.id, message.answer);
    } else {
      void this.#answer(shard, from, message.question)
        .catch((error: unknown): CopyAnswer => {
          // The other asks anew; what fails here is not its fault.
          const reason = toError(error).message;
          if (!isCodedError(error)) logger.error("cluster.copy_failed", { shard, reason });
          return { kind: "gone" };
        })
        .then((answer) => {
          const reply = encodeCopyMessage({ kind: "answer", id: message.id, answer });
          if (answer.kind === "rows") counters.copyBytesGiven += reply.length;
          this.#parts.send(shard, from, reply);
        });
    }
    return true;
  }

  async #answer(shard: number, from: number, question: CopyQuestion): Promise<CopyAnswer> {
    const supply = this.#parts.supplyOf(shard);
    if (supply === undefined) return { kind: "busy" };
    switch (question.kind) {
      case "facts":
        return this.#facts(supply, `${shard}/${from}`, question);
      case "slab": {
        const { number, pack, store, after } = question;
        return { kind: "rows", ...(await supply.slab({ number, pack }, store, after)) };
      }
      case "map":
        return { kind: "rows", ...(await supply.map(question.after)) };
      case "hash":
        return this.#hash(supply, question.number);
    }
  }

  async #facts(
    supply: CopySource,
    asker: string,
    { token, from }: { readonly token: number; readonly from: number },
  ): Promise<CopyAnswer> {
    let held = this.#held.get(asker);
    if (from === 0 && held?.token !== token) {
      held = { token, rows: await supply.facts() };
      const kept = held;
      this.#held.set(asker, held);
      this.#parts.clock.schedule(heldMs, () => {
        if (this.#held.get(asker) === kept) this.#held.delete(asker);
      });
    }
    if (held?.token !== token) return { kind: "gone" };
    const rows: CopyRow[] = [];
    for (let sizeBytes = 0; sizeBytes < pageBytesMax; ) {
      const row = held.rows[from + rows.length];
      if (row === undefined) return { kind: "rows", rows, isEnd: true };
      rows.push(row);
      sizeBytes += row[0].length + row[1].length;
    }
    return { kind: "rows", rows, isEnd: false };
  }

  async #hash(supply: CopySource, number: number): Promise<CopyAnswer> {
    const slow = new Promise<CopyAnswer>((resolve) => {
      this.#parts.clock.schedule(hashWaitMs, () => resolve({ kind: "busy" }));
    });
    const hashed = supply.hash(number).then((hash): CopyAnswer => ({ kind: "hash", hash }));
    return Promise.race([hashed, slow]);
  }
}
