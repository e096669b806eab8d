// Entries of a shard on their way through its log, and who is told of their items.

import type { ByteWriter } from "../base/index.ts";
import type { Item } from "./machine.ts";

export type OpenEntry = {
  readonly writer: ByteWriter;
  readonly items: Item[];
  /** Where each item ends in the entry. */
  readonly ends: number[];
  /** Of all `items`. */
  count: number;
  lastUs: number;
};

/** A proposed entry; those before `told` know of it. */
export type WaitingEntry = {
  readonly index: number;
  /** What was proposed: other bytes under this index are somebody else's. */
  readonly payload: Buffer | undefined;
  readonly items: readonly Item[];
  readonly ends: readonly number[];
  told: number;
  /** Those who are told early were. */
  isEarlyTold: boolean;
};

/** Nobody will ever see it in the log. */
export const neverProposed = ({ items, ends }: OpenEntry): WaitingEntry => ({
  ...{ items, ends, payload: undefined },
  ...{ index: 0, told: 0, isEarlyTold: false },
});
