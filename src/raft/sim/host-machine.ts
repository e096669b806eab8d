// The state machine of the simulated hosts: registers, a hash of everything applied, and a version
// that an entry raises. Snapshots hold all of it.
//
// Keeps: equal entries give equal hashes whatever program runs them, as long as that program knows
// the version in force; one that does not must never see such an entry.

import { crc32 } from "../../base/index.ts";
import type { CommandEntry } from "../core/types.ts";
import type { SnapshotHead } from "../host/manifest.ts";
import type { StateMachine } from "../host/ports.ts";

export const hostRegisters = 4;
const raiseKey = 255;
const snapshotBytes = 16 + hostRegisters * 4;

/** Told of every entry and every snapshot that reaches a machine. */
export type MachineWatch = {
  readonly applied: (index: number, term: number, hash: number) => void;
  readonly installed: (index: number, hash: number) => void;
};

export type MachineOptions = {
  /** What this program can do: 1 or 2. */
  readonly programVersion: number;
  /** Runs a task later, for machines that take their time; undefined: at once. */
  readonly later: ((task: () => void) => void) | undefined;
  /** Bytes that make snapshots longer than one chunk. */
  readonly paddingBytes: number;
};

export class HostMachine implements StateMachine {
  readonly version: number;
  readonly durableIndex = 0;
  values: number[] = new Array<number>(hostRegisters).fill(0);
  index = 0;
  hash = 0;
  /** In force; raised by an entry. */
  activeVersion = 1;
  readonly #options: MachineOptions;
  readonly #watch: MachineWatch;

  constructor(options: MachineOptions, watch: MachineWatch) {
    this.version = options.programVersion;
    this.#options = options;
    this.#watch = watch;
  }

  apply(entries: readonly CommandEntry[]): readonly number[] | Promise<readonly number[]> {
    const { later } = this.#options;
    if (later === undefined) return entries.map((entry) => this.#applyOne(entry));
    const copies = entries.map((entry) => ({ ...entry, data: Uint8Array.from(entry.data) }));
    return new Promise((resolve) => {
      later(() => resolve(copies.map((entry) => this.#applyOne(entry))));
    });
  }

  capture(): Iterable<Uint8Array> {
    const bytes = Buffer.alloc(snapshotBytes + this.#options.paddingBytes);
    const numbers = [this.index, this.hash, this.activeVersion, 0, ...this.values];
    for (const [place, value] of numbers.entries()) bytes.writeUInt32BE(value, place * 4);
    return [bytes];
  }

  async install(head: SnapshotHead, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const parts: Uint8Array[] = [];
    for await (const piece of pieces) parts.push(piece);
    const bytes = Buffer.concat(parts);
    if (bytes.length === 0) return;
    const number = (place: number): number => bytes.readUInt32BE(place * 4);
    const activeVersion = number(2);
    if (activeVersion > this.#options.programVersion)
      throw new Error("a snapshot of a newer version");
    this.index = number(0);
    this.hash = number(1);
    this.activeVersion = activeVersion;
    this.values = this.values.map((_, key) => number(4 + key));
    this.#watch.installed(head.meta.index, this.hash);
  }

  get captureVersion(): number {
    return this.activeVersion;
  }

  #applyOne(entry: CommandEntry): number {
    if (entry.version > this.#options.programVersion) {
      throw new Error(`an entry of version ${entry.version} met an older program`);
    }
    const key = entry.data[0] as number;
    const value = Buffer.from(entry.data).readUInt32BE(1);
    if (key === raiseKey) this.activeVersion = Math.max(this.activeVersion, value);
    else this.values[key % hostRegisters] = value;
    // The two versions differ in what they make of the same entry.
    const mark = Buffer.from(`${entry.index} ${key} ${value * this.activeVersion}`);
    this.hash = crc32(mark, this.hash);
    this.index = entry.index;
    this.#watch.applied(entry.index, entry.term, this.hash);
    return value;
  }
}

export function encodeHostWrite(key: number, value: number, paddingBytes: number): Buffer {
  const bytes = Buffer.alloc(5 + paddingBytes);
  bytes[0] = key;
  bytes.writeUInt32BE(value, 1);
  return bytes;
}

export function encodeRaise(version: number): Buffer {
  return encodeHostWrite(raiseKey, version, 0);
}
