// Opens what a former process left: finds the segments and their order, walks all flushes, tells
// damage from a torn tail, and makes the unproved end durable.
//
// Invariants: a flush is taken only with the number that is due, a right header CRC and right block
// CRCs; the flushes of a segment are those from its first number up to the first number of the next
// segment, whatever lies behind. A bad flush with nothing good behind it is a torn tail and is cut.
// Nothing on disk changes before the whole log has been read. The unproved last flush is rewritten
// in place with the bytes that are there already, so a crash on the way leaves either nothing
// changed or a flush that was never acked torn. What was found goes to the index of the shards.

import { type Counters, joinPath, syncFully, toError, writeFully } from "../base/index.ts";
import type { LogCounterHelp } from "./counters.ts";
import { DamageReport } from "./damage.ts";
import { logErrors } from "./errors.ts";
import {
  decodeBlock,
  decodeSegmentHeader,
  type FlushHeader,
  flushFixedBytes,
  formatVersion,
  peekFlush,
  type SegmentHeader,
  segmentHeaderBytes,
} from "./format.ts";
import { readNewest } from "./newest.ts";
import {
  endOfContent,
  type FoundFlush,
  findFlush,
  readBlocks,
  readFlushHeader,
  SegmentReader,
} from "./reader.ts";
import {
  createSegment,
  dataEnd,
  type FreeFile,
  freeSuffix,
  type Segment,
  walSuffix,
} from "./segments.ts";
import type { ShardIndex } from "./shard-index.ts";
import type { LogComponents, LogSettings } from "./types.ts";

export type Recovered = {
  /** In log order. */
  readonly segments: Segment[];
  /** Segment files whose header is lost. They go with the last of `segments`. */
  readonly lostFiles: FreeFile[];
  readonly freeFiles: FreeFile[];
  readonly nextFlush: number;
  readonly nextOrder: number;
  readonly fileNumber: number;
  readonly liveBytes: number;
  readonly report: DamageReport;
};

export type RecoveryPlace = {
  readonly dir: string;
  readonly settings: LogSettings;
  readonly components: LogComponents;
  readonly counters: Counters<LogCounterHelp>;
  readonly index: ShardIndex;
};

export async function recover(place: RecoveryPlace): Promise<Recovered> {
  const report = new DamageReport(place.components, place.dir, place.settings.onDamage);
  const listing = await listFiles(place);
  const walk = new Walk(place, report);
  try {
    for (const path of listing.walPaths) await walk.openFile(path);
    await walk.walkAll(await readNewest(place.components.disk, place.dir));
    const recovered = { ...listing, ...walk.result() };
    await walk.rewriteUnproved();
    place.counters.rot += report.damage.length;
    return { ...recovered, report };
  } finally {
    await walk.close();
  }
}

type Listing = {
  readonly walPaths: string[];
  readonly freeFiles: FreeFile[];
  readonly fileNumber: number;
};

async function listFiles(place: RecoveryPlace): Promise<Listing> {
  const { disk } = place.components;
  const walPaths: string[] = [];
  const freeFiles: FreeFile[] = [];
  let fileNumber = 0;
  for (const entry of await disk.list(place.dir)) {
    const isWal = entry.name.endsWith(walSuffix);
    if (entry.isDirectory || !(isWal || entry.name.endsWith(freeSuffix))) continue;
    const number = Number.parseInt(entry.name, 10);
    if (Number.isSafeInteger(number)) fileNumber = Math.max(fileNumber, number);
    const path = joinPath(place.dir, entry.name);
    if (isWal) {
      walPaths.push(path);
      continue;
    }
    const file = await disk.open(path, "read");
    try {
      freeFiles.push({ path, sizeBytes: await file.sizeBytes() });
    } finally {
      await file.close();
    }
  }
  return { walPaths, freeFiles, fileNumber };
}

/** A segment being read, with the header it was found by. */
type Opened = {
  readonly reader: SegmentReader;
  readonly segment: Segment;
  readonly header: SegmentHeader;
};

/** A flush with a good header and bad blocks: damage or torn, what comes next decides. */
type Held = { readonly flush: FoundFlush; readonly badBlocks: readonly BadBlock[] };
type BadBlock = { readonly offset: number; readonly sizeBytes: number };

/** A file that cannot take its place in the log. */
type LostFile = {
  readonly reader: SegmentReader;
  readonly reason: string;
  readonly isCopy: boolean;
};

class Walk {
  readonly #place: RecoveryPlace;
  readonly #report: DamageReport;
  readonly #opened: Opened[] = [];
  readonly #lost: LostFile[] = [];
  #due = 1;
  #nextOrderMin = 1;
  /** Highest number that a later flush or header proves synced. */
  #provedThrough = 0;
  #last: (FoundFlush & { readonly opened: Opened }) | undefined;

  constructor(place: RecoveryPlace, report: DamageReport) {
    this.#place = place;
    this.#report = report;
  }

  async openFile(path: string): Promise<void> {
    const file = await this.#place.components.disk.open(path, "read");
    const reader = new SegmentReader(file, await file.sizeBytes());
    const front = await readSegmentHeader(reader, 0);
    const back = await readSegmentHeader(reader, reader.sizeBytes - segmentHeaderBytes);
    const header = front ?? back;
    const isCopy = this.#opened.some((other) => header?.id.equals(other.header.id) === true);
    if (header === undefined || isCopy) {
      const reason = isCopy
        ? "the file is a copy of another segment"
        : "neither copy of the segment header is readable";
      this.#lost.push({ reader, reason, isCopy });
      return;
    }
    const opened = { reader, header, segment: createSegment(path, header) };
    this.#opened.push(opened);
  }

  /** `newestOrder`: of a segment that was there, if it is known; 0 if not. */
  async walkAll(newestOrder: number): Promise<void> {
    this.#opened.sort((a, b) => a.header.order - b.header.order);
    this.#due = this.#opened[0]?.header.firstFlush ?? 1;
    for (const [position, opened] of this.#opened.entries()) {
      await this.#noteBadHeaderCopy(opened);
      const next = this.#opened[position + 1];
      if (next === undefined) await this.#walkLast(opened);
      else await this.#walkInner(opened, next.header);
      opened.reader.rest();
    }
    await this.#noteLostFiles();
    this.#noteLostEnd(newestOrder);
    this.#report.finish();
  }

  result() {
    const lostFiles = this.#lost.map(({ reader }) => ({
      path: reader.path,
      sizeBytes: reader.sizeBytes,
    }));
    const segments = this.#opened.map((opened) => opened.segment);
    let liveBytes = 0;
    for (const { sizeBytes } of [...segments, ...lostFiles]) liveBytes += sizeBytes;
    const nextOrder = Math.max((segments.at(-1)?.order ?? 0) + 1, this.#nextOrderMin);
    return { segments, lostFiles, nextFlush: this.#due, nextOrder, liveBytes };
  }

  /**
   * At most one flush is ever written and not yet synced, so only the last one needs this. An empty
   * one as well: the next segment starts behind its number, and says so.
   */
  async rewriteUnproved(): Promise<void> {
    const last = this.#last;
    if (last === undefined || last.header.number <= this.#provedThrough) return;
    const { reader, segment } = last.opened;
    const bytes = Buffer.from(await reader.view(last.position, last.header.sizeBytes));
    const file = await this.#place.components.disk.open(segment.path, "write");
    try {
      await writeFully(file, bytes, last.position);
      await syncFully(file);
    } catch (error) {
      throw logErrors.failed({ path: segment.path, reason: toError(error).message }, error);
    } finally {
      await file.close();
    }
    this.#place.counters.rewrittenFlushes++;
  }

  async close(): Promise<void> {
    for (const { reader } of this.#opened) await this.#closeReader(reader);
    for (const { reader } of this.#lost) await this.#closeReader(reader);
  }

  async #closeReader(reader: SegmentReader): Promise<void> {
    this.#place.counters.unreadablePages += reader.unreadablePages;
    await reader.close();
  }

  async #walkInner(opened: Opened, next: SegmentHeader): Promise<void> {
    const numberLimit = next.firstFlush;
    const held = await this.#walkFlushes(opened, numberLimit);
    // The next header was written after every flush below its first number was synced.
    this.#provedThrough = Math.max(this.#provedThrough, numberLimit - 1);
    if (held !== undefined) await this.#takeDamaged(opened, held);
    if (this.#due >= numberLimit) {
      this.#noteForgotten(opened.header.order, next.order);
      return;
    }
    const from = opened.segment.endOffset;
    const to = await endOfContent(opened.reader, from, dataEnd(opened.segment));
    await this.#takeHole(opened, { from, to }, numberLimit);
  }

  async #walkLast(opened: Opened): Promise<void> {
    const { segment, reader } = opened;
    const held = await this.#walkFlushes(opened, Number.POSITIVE_INFINITY);
    if (reader.sizeBytes < segment.sizeBytes) {
      await this.#takeShortEnd(opened, held);
      return;
    }
    if (held !== undefined) {
      this.#due = held.flush.header.number;
      segment.endOffset = held.flush.position;
    }
    const begun = peekFlush(await reader.view(segment.endOffset, flushFixedBytes));
    if (begun?.number !== this.#due) return;
    this.#place.counters.cutTails++;
    const fields = { path: segment.path, offset: segment.endOffset };
    this.#place.components.logger.info("log.tail_cut", fields);
  }

  // Space is filled and synced before use: only damage makes a used segment shorter. So a flush
  // that the end of the file cuts is no torn tail, and others may have stood behind it.
  async #takeShortEnd(opened: Opened, held: Held | undefined): Promise<void> {
    const { segment, reader } = opened;
    if (held !== undefined) await this.#takeDamaged(opened, held);
    const from = segment.endOffset;
    if (from + flushFixedBytes > dataEnd(segment)) return;
    const [next] = await reader.view(from, 1);
    // A zero where a flush would begin: none was written there.
    if (next === 0) return;
    const reason = `the file ends at ${reader.sizeBytes} of ${segment.sizeBytes} bytes`;
    const to = Math.max(from, reader.sizeBytes);
    const place = { reader, label: `${segment.order}`, from, to, reason };
    this.#report.addHole(await this.#report.note(place));
  }

  /** Walks to the last good flush; answers a bad one that nothing good follows. */
  async #walkFlushes(opened: Opened, numberLimit: number): Promise<Held | undefined> {
    const { reader, segment } = opened;
    const end = Math.min(dataEnd(segment), reader.sizeBytes);
    let position = segmentHeaderBytes;
    let held: Held | undefined;
    while (this.#due < numberLimit) {
      let header = await readFlushHeader(reader, position, end, segment.seed);
      if (header?.number !== this.#due) {
        const found = await findFlush(reader, {
          from: position,
          end,
          seed: segment.seed,
          numberMin: this.#due + 1,
          numberLimit,
        });
        if (found === undefined) break;
        if (held !== undefined) await this.#takeDamaged(opened, held);
        held = undefined;
        await this.#takeHole(opened, { from: position, to: found.position }, found.header.number);
        position = found.position;
        header = found.header;
      } else if (held !== undefined) {
        await this.#takeDamaged(opened, held);
        held = undefined;
      }
      const flush = { position, header };
      const badBlocks = await findBadBlocks(reader, flush, segment.seed);
      if (badBlocks.length > 0) held = { flush, badBlocks };
      else this.#take(opened, flush);
      position += header.sizeBytes;
      segment.endOffset = position;
      this.#due = header.number + 1;
    }
    return held;
  }

  #take(opened: Opened, flush: FoundFlush): void {
    const { header, position } = flush;
    this.#provedThrough = Math.max(this.#provedThrough, header.syncedThrough);
    this.#last = { ...flush, opened };
    for (const span of header.spans) {
      this.#report.passSpan(span);
      this.#place.index.addSpan(opened.segment, position, span);
    }
    this.#shareBytes(header);
  }

  // Which record had how many bytes is not worth a decode of the whole log at every start.
  #shareBytes(header: FlushHeader): void {
    let count = 0;
    for (const span of header.spans) count += span.lastIndex - span.firstIndex + 1;
    for (const span of header.spans) {
      const share = (span.lastIndex - span.firstIndex + 1) / count;
      this.#place.index.obtain(span.shard).unreleasedBytes += Math.ceil(header.sizeBytes * share);
    }
  }

  /** A synced flush with bad blocks: keeps the good ones, reports the records of the others. */
  async #takeDamaged(opened: Opened, held: Held): Promise<void> {
    const { reader, segment } = opened;
    const label = `${segment.order}`;
    let quarantinePath: string | undefined;
    for (const { offset } of held.badBlocks) segment.badBlocks.add(offset);
    for (const { from, to } of areasOf(held.badBlocks)) {
      const reason = `flush ${held.flush.header.number} fails a checksum of its records`;
      const path = await this.#report.note({ reader, label, from, to, reason });
      quarantinePath = path ?? quarantinePath;
    }
    const readable = await readableIndexes(reader, held.flush, segment.seed);
    for (const span of held.flush.header.spans) {
      const good = readable.get(span.shard) ?? [];
      for (const [fromIndex, toIndex] of missingRanges(span, good)) {
        this.#report.addGap({ shard: span.shard, fromIndex, toIndex, quarantinePath });
      }
    }
    this.#take(opened, held.flush);
  }

  async #takeHole(
    opened: Opened,
    hole: { readonly from: number; readonly to: number },
    nextNumber: number,
  ): Promise<void> {
    const { reader, segment } = opened;
    const lost = nextNumber - this.#due;
    const reason = `${lost} flushes from number ${this.#due} on cannot be read`;
    const path = await this.#report.note({ reader, label: `${segment.order}`, ...hole, reason });
    this.#report.addHole(path);
    segment.holes.push(hole);
    this.#due = nextNumber;
  }

  async #noteBadHeaderCopy(opened: Opened): Promise<void> {
    const { reader, segment } = opened;
    for (const from of [0, segment.sizeBytes - segmentHeaderBytes]) {
      if ((await readSegmentHeader(reader, from)) !== undefined) continue;
      const reason = "one of the two copies of the segment header is damaged";
      const to = Math.max(from, Math.min(from + segmentHeaderBytes, reader.sizeBytes));
      await this.#report.note({ reader, label: `${segment.order}`, from, to, reason });
    }
  }

  /**
   * A start that found the newest segment missing went on with its numbers, and may have ended before
   * all shards told of it: the order alone still shows the loss. A shard that has later records told.
   */
  #noteForgotten(order: number, nextOrder: number): void {
    if (nextOrder <= order + 1) return;
    this.#report.noteGone(
      this.#place.dir,
      `segment ${nextOrder - 1} is missing since an earlier start`,
    );
  }

  /** A newer segment was there, and none of the files without a header can be it. */
  #noteLostEnd(newestOrder: number): void {
    const lastOrder = this.#opened.at(-1)?.header.order ?? 0;
    if (newestOrder <= lastOrder) return;
    this.#nextOrderMin = newestOrder + 1;
    if (this.#lost.some(({ isCopy }) => !isCopy)) return;
    const { dir } = this.#place;
    this.#report.noteGone(dir, `segment ${newestOrder} is missing; the last one is ${lastOrder}`);
  }

  async #noteLostFiles(): Promise<void> {
    let missing = 0;
    for (const [position, { header }] of this.#opened.entries()) {
      const before = this.#opened[position - 1];
      if (before !== undefined) missing += header.order - before.header.order - 1;
    }
    for (const { reader, reason, isCopy } of this.#lost) {
      const name = reader.path.slice(reader.path.lastIndexOf("/") + 1, -walSuffix.length);
      const to = await endOfContent(reader, 0, reader.sizeBytes);
      const path = await this.#report.note({ reader, label: `file${name}`, from: 0, to, reason });
      // One that is missed between two others is reported by the numbers of the flushes there.
      if (!isCopy && missing-- <= 0) this.#report.addUnplaced(path);
    }
  }
}

async function readSegmentHeader(
  reader: SegmentReader,
  position: number,
): Promise<SegmentHeader | undefined> {
  if (position < 0) return undefined;
  const decoded = decodeSegmentHeader(await reader.peek(position, segmentHeaderBytes));
  if (decoded.kind === "newer") {
    throw logErrors.versionUnknown({
      path: reader.path,
      version: decoded.version,
      versionMax: formatVersion,
    });
  }
  return decoded.kind === "valid" ? decoded.header : undefined;
}

async function findBadBlocks(
  reader: SegmentReader,
  flush: FoundFlush,
  seed: number,
): Promise<BadBlock[]> {
  const bad: BadBlock[] = [];
  for await (const { bytes, offset, sizeBytes } of readBlocks(reader, flush, seed)) {
    if (bytes === undefined) bad.push({ offset, sizeBytes });
  }
  return bad;
}

/** Bad blocks that lie side by side, as one area. */
function areasOf(blocks: readonly BadBlock[]): Array<{ from: number; to: number }> {
  const areas: Array<{ from: number; to: number }> = [];
  for (const { offset, sizeBytes } of blocks) {
    const last = areas.at(-1);
    if (last?.to === offset) last.to += sizeBytes;
    else areas.push({ from: offset, to: offset + sizeBytes });
  }
  return areas;
}

async function readableIndexes(
  reader: SegmentReader,
  flush: FoundFlush,
  seed: number,
): Promise<Map<number, number[]>> {
  const found = new Map<number, number[]>();
  for await (const { bytes } of readBlocks(reader, flush, seed)) {
    const records = bytes === undefined ? undefined : decodeBlock(bytes);
    for (const { shard, index } of records ?? []) {
      const list = found.get(shard);
      if (list === undefined) found.set(shard, [index]);
      else list.push(index);
    }
  }
  return found;
}

/** Parts of the span that are not in `good`, which ascends. */
function missingRanges(
  span: { readonly firstIndex: number; readonly lastIndex: number },
  good: readonly number[],
): Array<[number, number]> {
  const missing: Array<[number, number]> = [];
  let due = span.firstIndex;
  for (const index of good) {
    if (index > due) missing.push([due, index - 1]);
    due = index + 1;
  }
  if (due <= span.lastIndex) missing.push([due, span.lastIndex]);
  return missing;
}
