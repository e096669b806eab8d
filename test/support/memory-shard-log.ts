// The smallest log that a shard can stand on: entries in arrays that outlive its processes. Durable
// and committed some turns after they were proposed.

import type { ShardEntry, ShardLog, ShardLogHandlers } from "../../src/store/index.ts";

/** What outlives a process. */
export type MemoryLogDisk = { readonly entries: Map<number, ShardEntry[]> };

export class MemoryShardLog implements ShardLog {
  readonly shard: number;
  readonly payloadBytesMax = 1_000_000;
  readonly gaps = [];
  readonly pins = false;
  readonly #entries: ShardEntry[];
  #proposed: ShardEntry[] = [];
  #handlers: ShardLogHandlers | undefined;
  #lastIndex = 0;
  #releasedIndex = 0;
  /** `dead`: the process has ended, nobody is told of anything. */
  #state: "running" | "failed" | "dead" = "running";

  constructor(shard: number, { entries }: MemoryLogDisk) {
    this.shard = shard;
    this.#entries = entries.get(shard) ?? [];
    entries.set(shard, this.#entries);
  }

  get lastIndex(): number {
    return this.#lastIndex;
  }

  get bytesSinceRelease(): number {
    let sizeBytes = 0;
    for (const { index, payload } of this.#entries) {
      if (index > this.#releasedIndex) sizeBytes += payload.length + 1;
    }
    return sizeBytes;
  }

  async replay(
    fromIndex: number,
    visit: (entry: ShardEntry) => void | Promise<void>,
  ): Promise<void> {
    for (const entry of this.#entries) if (entry.index >= fromIndex) await visit(entry);
  }

  start(nextIndex: number, handlers: ShardLogHandlers): void {
    this.#lastIndex = nextIndex - 1;
    this.#handlers = handlers;
  }

  propose(kind: number, version: number, payload: Buffer): void {
    this.#proposed.push({ index: ++this.#lastIndex, kind, version, payload });
    if (this.#proposed.length === 1) setImmediate(() => this.#commit());
  }

  release(index: number): void {
    this.#releasedIndex = Math.max(this.#releasedIndex, index);
  }

  /** Its entries stand in nobody's way. */
  async copyBacklog(): Promise<undefined> {
    return undefined;
  }

  fail(): void {
    this.#state = "failed";
  }

  end(): void {
    this.#state = "dead";
  }

  #commit(): void {
    const entries = this.#proposed;
    this.#proposed = [];
    if (this.#state === "dead") return;
    if (this.#state === "failed") {
      const handlers = this.#handlers;
      this.#handlers = undefined;
      handlers?.onFailed(new Error("the log has failed"));
      return;
    }
    this.#entries.push(...entries);
    for (const entry of entries) this.#handlers?.onCommitted(entry);
  }
}
