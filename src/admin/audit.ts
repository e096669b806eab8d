// The audit log: who changed what, one JSON object a line, kept apart from the node's log. It is
// written before the answer leaves; a failure to write it fails no change, and is told in the log.
//
// Four trails, each with two files of bounded size, of which the older goes when the younger is full:
// changes that need an admin, others that admins made, those that operators made, and attempts of keys
// whose role did not suffice. So nobody washes out what higher roles did by doing, or trying, a lot.

import {
  type Disk,
  type DiskFile,
  isCodedError,
  joinPath,
  type Logger,
  readFile,
  syncFully,
  toError,
  writeFully,
} from "../base/index.ts";
import type { AuditEntry } from "./contract.ts";

export const auditTrails = ["admin", "byAdmin", "operator", "refused"] as const;
export type AuditTrail = (typeof auditTrails)[number];

const fileNames: Readonly<Record<AuditTrail, string>> = {
  admin: "audit",
  byAdmin: "audit-by-admin",
  operator: "audit-operator",
  refused: "audit-refused",
};

export type AuditComponents = { readonly disk: Disk; readonly logger: Logger };

/** Entries of each trail that were answered before a page. */
export type AuditPosition = readonly number[];

export type AuditPage = {
  readonly entries: readonly AuditEntry[];
  /** Undefined at the end. */
  readonly next: AuditPosition | undefined;
  readonly total: number;
};

export class AuditLog {
  readonly #trails: Readonly<Record<AuditTrail, Trail>>;
  readonly #components: AuditComponents;

  constructor(dir: string, bytesMax: number, components: AuditComponents) {
    this.#components = components;
    const fileBytesMax = bytesMax / auditTrails.length / 2;
    const trail = (name: AuditTrail): Trail =>
      new Trail(joinPath(dir, fileNames[name]), { dir, fileBytesMax }, components);
    this.#trails = {
      admin: trail("admin"),
      byAdmin: trail("byAdmin"),
      operator: trail("operator"),
      refused: trail("refused"),
    };
  }

  /** Resolves when the line is durable, or could not be written. */
  add(entry: AuditEntry, trail: AuditTrail): Promise<void> {
    this.#components.logger.info("admin.change", { ...entry });
    return this.#trails[trail].add(Buffer.from(`${JSON.stringify(entry)}\n`));
  }

  /** Newest first, over all trails. */
  async list(after: AuditPosition | undefined, countMax: number): Promise<AuditPage> {
    const trails = auditTrails.map((name) => this.#trails[name]);
    const lines = await Promise.all(trails.map((trail) => trail.newestFirst()));
    const at = lines.map((_, index) => after?.[index] ?? 0);
    const heads = lines.map((list, index) => nextEntry(list, at, index));
    const entries: AuditEntry[] = [];
    while (entries.length < countMax) {
      const newest = indexOfNewest(heads);
      const entry = heads[newest];
      if (entry === undefined) break;
      entries.push(entry);
      at[newest] = (at[newest] ?? 0) + 1;
      heads[newest] = nextEntry(lines[newest] ?? [], at, newest);
    }
    const hasMore = heads.some((head) => head !== undefined);
    const total = lines.reduce((sum, list) => sum + list.length, 0);
    return { entries, next: hasMore ? at : undefined, total };
  }

  async close(): Promise<void> {
    for (const name of auditTrails) await this.#trails[name].close();
  }
}

/** The entry at a trail's place, which moves over lines that a power cut tore. */
function nextEntry(lines: readonly string[], at: number[], index: number): AuditEntry | undefined {
  for (let place = at[index] ?? 0; place < lines.length; place++) {
    at[index] = place;
    const entry = parseLine(lines[place] ?? "");
    if (entry !== undefined) return entry;
  }
  return undefined;
}

function indexOfNewest(heads: ReadonlyArray<AuditEntry | undefined>): number {
  let newest = 0;
  for (const [index, head] of heads.entries()) {
    if (head === undefined) continue;
    const best = heads[newest];
    if (best === undefined || head.timeMs > best.timeMs) newest = index;
  }
  return newest;
}

function parseLine(line: string): AuditEntry | undefined {
  try {
    return JSON.parse(line) as AuditEntry;
  } catch {
    // A line that a power cut tore is no entry.
    return undefined;
  }
}

type TrailSettings = { readonly dir: string; readonly fileBytesMax: number };

/** `NAME.ndjson`, and `NAME.1.ndjson` with what is older. */
class Trail {
  readonly #path: string;
  readonly #formerPath: string;
  readonly #settings: TrailSettings;
  readonly #components: AuditComponents;
  #file: DiskFile | undefined;
  #sizeBytes = 0;
  #work: Promise<void> = Promise.resolve();

  constructor(name: string, settings: TrailSettings, components: AuditComponents) {
    this.#path = `${name}.ndjson`;
    this.#formerPath = `${name}.1.ndjson`;
    this.#settings = settings;
    this.#components = components;
  }

  add(line: Buffer): Promise<void> {
    this.#work = this.#work
      .then(() => this.#append(line))
      .catch((error: unknown) => {
        this.#components.logger.error("admin.audit_failed", { error: toError(error) });
      });
    return this.#work;
  }

  async newestFirst(): Promise<string[]> {
    await this.#work;
    const lines = [...(await this.#lines(this.#formerPath)), ...(await this.#lines(this.#path))];
    return lines.toReversed();
  }

  async close(): Promise<void> {
    await this.#work;
    await this.#file?.close();
    this.#file = undefined;
  }

  async #append(line: Buffer): Promise<void> {
    const { disk } = this.#components;
    this.#file ??= await this.#open();
    if (this.#sizeBytes > 0 && this.#sizeBytes + line.length > this.#settings.fileBytesMax) {
      await this.#file.close();
      this.#file = undefined;
      await disk.rename(this.#path, this.#formerPath);
      this.#file = await this.#open();
    }
    await writeFully(this.#file, line, this.#sizeBytes);
    await syncFully(this.#file);
    this.#sizeBytes += line.length;
  }

  async #open(): Promise<DiskFile> {
    const { disk } = this.#components;
    const isThere = await disk.exists(this.#path);
    const file = await disk.open(this.#path, isThere ? "write" : "create");
    if (!isThere) await disk.syncDir(this.#settings.dir);
    this.#sizeBytes = await file.sizeBytes();
    return file;
  }

  async #lines(path: string): Promise<string[]> {
    try {
      const bytes = await readFile(this.#components.disk, path);
      return bytes
        .toString("utf8")
        .split("\n")
        .filter((line) => line !== "");
    } catch (error) {
      if (isCodedError(error, "DISK_NOT_FOUND")) return [];
      throw error;
    }
  }
}
