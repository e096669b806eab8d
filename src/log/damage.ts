// Damage found while the log is opened: where it is, which shards lost which records, and the copy
// of the bad bytes.
//
// Rules (docs/formats/log.md, "recovery"): a flush whose header is readable tells exactly whose
// records it held. For one whose header is not, a shard is clear when its next record follows on
// without a gap in the same term; it lost exactly the gap when there is one; it may have lost its
// end when it has no later record. Shards without any readable record are answered by `gapsOf`.

import {
  type Disk,
  joinPath,
  type Logger,
  parentDir,
  syncFully,
  toError,
  writeFully,
} from "../base/index.ts";
import { logErrors } from "./errors.ts";
import type { ShardSpan } from "./format.ts";
import type { SegmentReader } from "./reader.ts";
import type { LogDamage, LogGap } from "./types.ts";

const copyStepBytes = 1024 * 1024;
/** Copies made at one open: what is worse than this is a matter for a backup. The rest is told. */
const copiesMax = 256;

export type DamagedPlace = {
  readonly reader: SegmentReader;
  /** Part of the copy's name: the same damage is copied once, however often the log is opened. */
  readonly label: string;
  readonly from: number;
  readonly to: number;
  readonly reason: string;
};

/** What is known of a shard at this point of the scan. */
type Seen = { lastIndex: number; lastTerm: number; firstIndex: number; holeCount: number };

export class DamageReport {
  readonly damage: LogDamage[] = [];
  readonly #disk: Disk;
  readonly #logger: Logger;
  readonly #dir: string;
  readonly #onDamage: "quarantine" | "refuse";
  readonly #gaps = new Map<number, LogGap[]>();
  readonly #seen = new Map<number, Seen>();
  /** Copies of flushes that do not tell what they held, in log order. */
  readonly #holes: Array<string | undefined> = [];
  /** A whole segment of unknown place is lost: it may have been the first or the last. */
  #unplaced: { readonly quarantinePath: string | undefined } | undefined;

  constructor(
    components: { readonly disk: Disk; readonly logger: Logger },
    dir: string,
    onDamage: "quarantine" | "refuse",
  ) {
    this.#disk = components.disk;
    this.#logger = components.logger;
    this.#dir = joinPath(parentDir(dir), "quarantine");
    this.#onDamage = onDamage;
  }

  /**
   * Takes note of a damaged place and copies its bytes.
   * @throws LOG_DAMAGED under `refuse`.
   */
  async note(place: DamagedPlace): Promise<string | undefined> {
    const { reader, from, to, reason } = place;
    if (this.#onDamage === "refuse") {
      throw logErrors.damaged({ path: reader.path, offset: from, reason });
    }
    const isCopied = to > from && this.damage.length < copiesMax;
    const quarantinePath = isCopied ? await this.#copy(place) : undefined;
    const found = { path: reader.path, offset: from, sizeBytes: to - from, reason, quarantinePath };
    this.damage.push(found);
    this.#logger.error("log.damage_found", found);
    return quarantinePath;
  }

  /** The end of the log is gone: there are no bytes to copy. @throws LOG_DAMAGED under `refuse`. */
  noteGone(path: string, reason: string): void {
    if (this.#onDamage === "refuse") throw logErrors.damaged({ path, offset: 0, reason });
    const found = { path, offset: 0, sizeBytes: 0, reason, quarantinePath: undefined };
    this.damage.push(found);
    this.#logger.error("log.damage_found", found);
    this.addHole(undefined);
  }

  /** Flushes are lost and nothing says whose records they held. */
  addHole(quarantinePath: string | undefined): void {
    this.#holes.push(quarantinePath);
  }

  addUnplaced(quarantinePath: string | undefined): void {
    this.#unplaced = { quarantinePath };
  }

  /** Gaps of a shard come in ascending order; those that touch become one. */
  addGap(gap: LogGap): void {
    const list = this.#gaps.get(gap.shard) ?? [];
    const last = list.at(-1);
    if (last?.toIndex !== undefined && last.toIndex + 1 === gap.fromIndex) {
      list[list.length - 1] = { ...last, toIndex: gap.toIndex };
    } else {
      list.push(gap);
    }
    this.#gaps.set(gap.shard, list);
  }

  /** The next flush in the log holds these; a damaged one with a readable header as well. */
  passSpan(span: ShardSpan): void {
    const seen = this.#seen.get(span.shard);
    if (seen === undefined) {
      const holeCount = this.#holes.length;
      if (holeCount > 0 && span.firstIndex > 1) {
        this.#addLost(span.shard, 1, span.firstIndex - 1, this.#holes[0]);
      }
      const { firstIndex, lastIndex, lastTerm } = span;
      this.#seen.set(span.shard, { firstIndex, lastIndex, lastTerm, holeCount });
      return;
    }
    if (seen.holeCount < this.#holes.length) this.#passHole(seen, span);
    seen.lastIndex = span.lastIndex;
    seen.lastTerm = span.lastTerm;
  }

  /** The whole log has been read. */
  finish(): void {
    for (const [shard, seen] of this.#seen) {
      if (seen.holeCount < this.#holes.length) {
        this.#addLost(shard, seen.lastIndex + 1, undefined, this.#holes[seen.holeCount]);
      } else if (this.#unplaced !== undefined) {
        this.#addLost(shard, seen.lastIndex + 1, undefined, this.#unplaced.quarantinePath);
      }
      if (this.#unplaced !== undefined && seen.firstIndex > 1) {
        this.#addLost(shard, 1, seen.firstIndex - 1, this.#unplaced.quarantinePath);
      }
    }
  }

  get gaps(): LogGap[] {
    return [...this.#gaps.values()].flat();
  }

  gapsOf(shard: number): readonly LogGap[] {
    const known = this.#gaps.get(shard);
    if (known !== undefined || this.#seen.has(shard)) return known ?? [];
    if (this.#holes.length === 0 && this.#unplaced === undefined) return [];
    const quarantinePath = this.#holes[0] ?? this.#unplaced?.quarantinePath;
    return [{ shard, fromIndex: 1, toIndex: undefined, quarantinePath }];
  }

  #passHole(seen: Seen, span: ShardSpan): void {
    const quarantinePath = this.#holes[seen.holeCount];
    if (span.firstIndex > seen.lastIndex + 1) {
      this.#addLost(span.shard, seen.lastIndex + 1, span.firstIndex - 1, quarantinePath);
    } else if (span.lastTerm !== seen.lastTerm) {
      // A lost flush may have replaced what stands before it: only one term rules that out.
      this.#addLost(span.shard, seen.firstIndex, span.firstIndex - 1, quarantinePath);
    }
    seen.holeCount = this.#holes.length;
  }

  #addLost(
    shard: number,
    fromIndex: number,
    toIndex: number | undefined,
    quarantinePath: string | undefined,
  ): void {
    this.addGap({ shard, fromIndex, toIndex, quarantinePath });
  }

  // A copy that fails must not keep the log from opening: the bytes stay where they are until the
  // segment is recycled, and the damage is reported all the same.
  async #copy(place: DamagedPlace): Promise<string | undefined> {
    const path = joinPath(this.#dir, `log-${place.label}-${place.from}-${place.to}.bin`);
    try {
      await this.#disk.makeDir(this.#dir);
      if (await this.#disk.exists(path)) return path;
      const temporary = `${path}.new`;
      await this.#disk.remove(temporary);
      const file = await this.#disk.open(temporary, "create");
      try {
        for (let at = place.from; at < place.to; at += copyStepBytes) {
          const size = Math.min(copyStepBytes, place.to - at);
          const bytes = await place.reader.view(at, size);
          await writeFully(file, Uint8Array.from(bytes), at - place.from);
        }
        await syncFully(file);
      } finally {
        await file.close();
      }
      await this.#disk.rename(temporary, path);
      await this.#disk.syncDir(this.#dir);
      return path;
    } catch (error) {
      this.#logger.warn("log.quarantine_failed", { path, reason: toError(error).message });
      return undefined;
    }
  }
}
