// Another replica as a source of copies: questions to it, one at a time, and its answers.
//
// Keeps: a question is asked again, under its number, until its answer came or the other is silent for
// too long; an answer to anything else is dropped; no more bytes a second than the limit.

import type { Cancel, Clock } from "../base/index.ts";
import type { CopyPage, CopySource, SlabStoreName } from "../store/index.ts";
import { storeErrors } from "../store/index.ts";
import type { CopyAnswer, CopyQuestion, CopyRow } from "./core/copy-codec.ts";

export type CopySettings = {
  /** A question without an answer is asked again. */
  readonly answerMs: number;
  /** Without any answer the other is given up. */
  readonly patienceMs: number;
  /** Of one shard: the log of those that are well goes by the same wire and disk. */
  readonly bytesPerSecondMax: number;
};

export const defaultCopySettings: CopySettings = {
  answerMs: 1_000,
  patienceMs: 10_000,
  bytesPerSecondMax: 64 * 1024 * 1024,
};

export type RemoteCopyParts = {
  readonly clock: Clock;
  readonly settings: CopySettings;
  /** The number of the other node. */
  readonly node: number;
  /** Unique on this node. */
  readonly nextId: () => number;
  readonly send: (id: number, question: CopyQuestion) => void;
};

type Open = {
  readonly id: number;
  readonly resolve: (answer: CopyAnswer) => void;
};

export class RemoteCopy implements CopySource {
  readonly id: string;
  readonly #parts: RemoteCopyParts;
  #open: Open | undefined;
  #isClosed = false;
  /** No question before: what was taken is paid for. */
  #notBeforeMs = 0;

  constructor(parts: RemoteCopyParts) {
    this.#parts = parts;
    this.id = `node ${parts.node}`;
  }

  async facts(): Promise<readonly CopyRow[]> {
    const token = this.#parts.nextId();
    const rows: CopyRow[] = [];
    for (;;) {
      const page = await this.#page({ kind: "facts", token, from: rows.length });
      rows.push(...page.rows);
      if (page.isEnd) return rows;
    }
  }

  slab(
    { number, pack }: { readonly number: number; readonly pack: number },
    store: SlabStoreName,
    after: Uint8Array | undefined,
  ): Promise<CopyPage> {
    return this.#page({ kind: "slab", number, pack, store, after });
  }

  map(after: Uint8Array | undefined): Promise<CopyPage> {
    return this.#page({ kind: "map", after });
  }

  async hash(number: number): Promise<string> {
    const answer = await this.#ask({ kind: "hash", number });
    if (answer.kind === "hash") return answer.hash;
    throw storeErrors.copyGone({ what: `generation ${number}` });
  }

  /** What is under way, and all later questions, come to nothing. */
  close(): void {
    this.#isClosed = true;
    this.#open?.resolve({ kind: "gone" });
  }

  receive(id: number, answer: CopyAnswer): void {
    if (this.#open?.id === id) this.#open.resolve(answer);
  }

  async #page(question: CopyQuestion): Promise<CopyPage> {
    const answer = await this.#ask(question);
    if (answer.kind !== "rows") throw storeErrors.copyGone({ what: `its ${question.kind}` });
    const { clock, settings } = this.#parts;
    let sizeBytes = 0;
    for (const [key, value] of answer.rows) sizeBytes += key.length + value.length;
    const nowMs = clock.elapsedMs();
    const costMs = (1_000 * sizeBytes) / settings.bytesPerSecondMax;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, nowMs) + costMs;
    return answer;
  }

  async #ask(question: CopyQuestion): Promise<CopyAnswer> {
    const { clock, settings, nextId } = this.#parts;
    const restMs = this.#notBeforeMs - clock.elapsedMs();
    if (restMs >= 1) await new Promise<void>((resolve) => clock.schedule(restMs, resolve));
    const untilMs = (): number => clock.elapsedMs() + settings.patienceMs;
    for (let silentMs = untilMs(); ; ) {
      const answer = await this.#askOnce(nextId(), question);
      if (answer === undefined) {
        if (clock.elapsedMs() < silentMs) continue;
        throw storeErrors.copyGone({ what: `an answer (node ${this.#parts.node})` });
      }
      if (answer.kind !== "busy") return answer;
      silentMs = untilMs();
      await new Promise<void>((resolve) => clock.schedule(settings.answerMs, resolve));
    }
  }

  #askOnce(id: number, question: CopyQuestion): Promise<CopyAnswer | undefined> {
    const { clock, settings, send } = this.#parts;
    return new Promise((resolve) => {
      if (this.#isClosed) return resolve({ kind: "gone" });
      let cancel: Cancel = () => undefined;
      const end = (answer: CopyAnswer | undefined): void => {
        cancel();
        this.#open = undefined;
        resolve(answer);
      };
      cancel = clock.schedule(settings.answerMs, () => end(undefined));
      this.#open = { id, resolve: end };
      send(id, question);
    });
  }
}
