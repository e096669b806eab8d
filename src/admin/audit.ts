// The audit log: who changed what, one JSON object a line, kept apart from the node's log. Two files of
// bounded size; the older one goes when the younger is full. It is written before the answer leaves;
// a failure to write it fails the change only where nothing was changed yet, so it is told in the log.

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

const fileName = "audit.ndjson";
const formerName = "audit.1.ndjson";

export type AuditComponents = { readonly disk: Disk; readonly logger: Logger };

export class AuditLog {
  readonly #dir: string;
  readonly #bytesMax: number;
  readonly #components: AuditComponents;
  #file: DiskFile | undefined;
  #sizeBytes = 0;
  #work: Promise<void> = Promise.resolve();

  constructor(dir: string, bytesMax: number, components: AuditComponents) {
    this.#dir = dir;
    this.#bytesMax = bytesMax;
    this.#components = components;
  }

  /** Resolves when the line is durable, or could not be written. */
  add(entry: AuditEntry): Promise<void> {
    const { logger } = this.#components;
    logger.info("admin.change", { ...entry });
    const line = Buffer.from(`${JSON.stringify(entry)}\n`);
    this.#work = this.#work
      .then(() => this.#append(line))
      .catch((error: unknown) => {
        logger.error("admin.audit_failed", { error: toError(error) });
      });
    return this.#work;
  }

  /** Newest first. */
  async list(after: number, countMax: number): Promise<{ entries: AuditEntry[]; total: number }> {
    await this.#work;
    const lines = [...(await this.#lines(formerName)), ...(await this.#lines(fileName))];
    const newestFirst = lines.toReversed();
    const entries = newestFirst.slice(after, after + countMax).flatMap((line) => {
      const entry = parseLine(line);
      return entry === undefined ? [] : [entry];
    });
    return { entries, total: lines.length };
  }

  async close(): Promise<void> {
    await this.#work;
    await this.#file?.close();
    this.#file = undefined;
  }

  async #append(line: Buffer): Promise<void> {
    const { disk } = this.#components;
    const path = joinPath(this.#dir, fileName);
    this.#file ??= await this.#open(path);
    if (this.#sizeBytes > 0 && this.#sizeBytes + line.length > this.#bytesMax / 2) {
      await this.#file.close();
      this.#file = undefined;
      await disk.rename(path, joinPath(this.#dir, formerName));
      this.#file = await this.#open(path);
    }
    await writeFully(this.#file, line, this.#sizeBytes);
    await syncFully(this.#file);
    this.#sizeBytes += line.length;
  }

  async #open(path: string): Promise<DiskFile> {
    const { disk } = this.#components;
    const isThere = await disk.exists(path);
    const file = await disk.open(path, isThere ? "write" : "create");
    if (!isThere) await disk.syncDir(this.#dir);
    this.#sizeBytes = await file.sizeBytes();
    return file;
  }

  async #lines(name: string): Promise<string[]> {
    try {
      const bytes = await readFile(this.#components.disk, joinPath(this.#dir, name));
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

/** A line that a power cut tore is no entry. */
function parseLine(line: string): AuditEntry | undefined {
  try {
    return JSON.parse(line) as AuditEntry;
  } catch {
    return undefined;
  }
}
