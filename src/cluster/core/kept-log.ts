// How far a shard's log is cut behind its checkpoints: members that are away for a short time come back
// to the log, and only those that stay away for longer have to copy.
//
// Keeps: what is cut was checkpointed before; the log above it is as old as the time, unless it takes
// more room than it may.

export type KeepSettings = {
  /** A member that is away for no longer finds all that it lacks in the log. */
  readonly keepMs: number;
  /** … unless its shard's log takes more than this. */
  readonly keepBytesMax: number;
};

export const defaultKeepSettings: KeepSettings = {
  keepMs: 10 * 60_000,
  keepBytesMax: 512 * 1024 * 1024,
};

type Mark = { readonly index: number; readonly atMs: number; readonly totalBytes: number };

export class KeptLog {
  readonly #settings: KeepSettings;
  /** Checkpoints, ascending, the last that may be cut first. */
  #marks: Mark[] = [];
  #totalBytes = 0;

  constructor(settings: KeepSettings) {
    this.#settings = settings;
  }

  add(sizeBytes: number): void {
    this.#totalBytes += sizeBytes;
  }

  checkpointed(index: number, nowMs: number): void {
    if (index <= (this.#marks.at(-1)?.index ?? 0)) return;
    this.#marks.push({ index, atMs: nowMs, totalBytes: this.#totalBytes });
  }

  /** Up to here the log may be cut; 0: nowhere yet. */
  cutIndex(nowMs: number): number {
    const { keepMs, keepBytesMax } = this.#settings;
    const at = this.#marks.findLastIndex(
      ({ atMs, totalBytes }) =>
        nowMs - atMs >= keepMs || this.#totalBytes - totalBytes >= keepBytesMax,
    );
    if (at > 0) this.#marks = this.#marks.slice(at);
    return at < 0 ? 0 : (this.#marks[0]?.index ?? 0);
  }
}
