// The state machine of the simulation: a few registers. A command is {key u8, id u32} and padding;
// the register takes the id, which no other command carries, as its value.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import type { Entry } from "../core/types.ts";

export const registerCount = 3;

/** Registers by key and a hash over everything applied; never changed once made. */
export type MachineState = {
  readonly index: number;
  readonly values: readonly number[];
  readonly hash: number;
};

export const emptyMachine: MachineState = {
  index: 0,
  values: new Array<number>(registerCount).fill(0),
  hash: 0,
};

export function encodeCommand(key: number, id: number, paddingBytes: number): Uint8Array {
  const command = new ByteWriter(5 + paddingBytes).u8(key).u32(id);
  return command.raw(new Uint8Array(paddingBytes)).finish();
}

/** The state after one more entry. */
export function applyEntry(state: MachineState, entry: Entry): MachineState {
  const hash = mix(state.hash, entryHash(entry));
  if (entry.kind !== "command") return { index: entry.index, values: state.values, hash };
  const reader = new ByteReader(entry.data);
  const key = reader.u8();
  const values = [...state.values];
  values[key] = reader.u32();
  return { index: entry.index, values, hash };
}

/** Identity of an entry: position, kind and contents. */
export function entryHash(entry: Entry): number {
  let hash = mix(mix(entry.index, entry.term), entry.kind.length);
  if (entry.kind === "command") {
    const { data } = entry;
    for (let at = 0; at < 5; at++) hash = mix(hash, data[at] ?? 0);
  }
  if (entry.kind === "membership") hash = mix(hash, entry.change.node * 8 + entry.change.op.length);
  return hash;
}

/** One step of a running hash, 32 bits. */
export function mix(hash: number, value: number): number {
  let mixed = Math.imul(hash ^ value, 0x9e3779b1);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x85ebca6b);
  return (mixed ^ (mixed >>> 13)) >>> 0;
}
