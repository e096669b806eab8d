// What every layout must do with its shard's state: what was acked is there after any end of the
// process, in one order, and a checkpoint changes nothing that can be read.
//
// A rig makes the same changes in the same order each time. They are numbered from 1.

import { deepEqual, equal, notEqual, ok } from "node:assert/strict";
import { type AddRule, type ContractRule, type Rig, rulesOf } from "./rule.ts";

/** `stop`: an orderly end. `kill`: what was written is there. `power`: what was synced is there. */
export type LayoutEnd = "stop" | "kill" | "power";

export type LayoutRig = Rig & {
  /** The shard in a new process: the first one ever, or recovered. */
  open(): Promise<LayoutShard>;
  end(how: LayoutEnd): Promise<void>;
  /** A drawn while passes, another one for each number. */
  pass(number: number): Promise<void>;
  /** What `list` gives after the first `count` changes. */
  expected(count: number): readonly string[];
};

export type LayoutShard = {
  /** Makes one change; resolves with its commit time when it is durable and applied. */
  change(number: number): Promise<number>;
  checkpoint(): Promise<void>;
  /** All that can be read, in order. */
  list(): Promise<readonly string[]>;
  /** The shard's logical hash. */
  hash(): Promise<string>;
};

const endNames: Readonly<Record<LayoutEnd, string>> = {
  stop: "an orderly end",
  kill: "the death of the process",
  power: "a power cut",
};

/** Rules for a layout. */
export function layoutContract(openRig: () => Promise<LayoutRig>): ContractRule[] {
  return rulesOf(openRig, (add) => {
    add(
      "commit times grow with the changes, and a change that was acked can be read",
      async (rig) => {
        const shard = await rig.open();
        let lastUs = 0;
        for (let number = 1; number <= 12; number++) {
          const timeUs = await shard.change(number);
          ok(timeUs > lastUs, `change ${number} at ${timeUs} comes after ${lastUs}`);
          lastUs = timeUs;
          deepEqual(await shard.list(), rig.expected(number));
        }
      },
    );

    add("changes made at once are applied in the order of their calls", async (rig) => {
      const shard = await rig.open();
      const times = await changes(shard, 1, 40);
      deepEqual(
        times,
        [...times].sort((a, b) => a - b),
      );
      deepEqual(await shard.list(), rig.expected(40));
    });

    add("a checkpoint changes nothing that can be read", async (rig) => {
      const shard = await rig.open();
      await changes(shard, 1, 20);
      const before = await shard.hash();
      await shard.checkpoint();
      equal(await shard.hash(), before);
      await changes(shard, 21, 30);
      deepEqual(await shard.list(), rig.expected(30));
    });

    add("the logical hash differs as soon as the state does", async (rig) => {
      const shard = await rig.open();
      const hashes = new Set([await shard.hash()]);
      for (let number = 1; number <= 12; number++) {
        await shard.change(number);
        hashes.add(await shard.hash());
      }
      equal(hashes.size, 13);
    });
    for (const how of ["stop", "kill", "power"] as const) addEndRules(add, how);
    addCutRules(add);
  });
}

function addEndRules(add: AddRule<LayoutRig>, how: LayoutEnd): void {
  add(
    `after ${endNames[how]} all that was acked is there, of the rest a beginning`,
    async (rig) => {
      const shard = await rig.open();
      await changes(shard, 1, 30);
      for (let number = 31; number <= 40; number++) shard.change(number).catch(() => undefined);
      await rig.end(how);
      const again = await rig.open();
      const found = await again.list();
      const isBeginning = numbers(30, 40).some((count) => isEqual(found, rig.expected(count)));
      ok(isBeginning, `not what 30 to 40 changes leave: ${found.join(", ")}`);
    },
  );

  add(
    `after ${endNames[how]} the logical hash is what it was, wherever a checkpoint stood`,
    async (rig) => {
      let shard = await rig.open();
      let number = 1;
      for (let round = 0; round < 4; round++) {
        await changes(shard, number, number + 8);
        number += 9;
        if (round % 2 === 0) await shard.checkpoint();
        await changes(shard, number, number + round);
        number += round + 1;
        const before = await shard.hash();
        notEqual(before, "");
        await rig.end(how);
        shard = await rig.open();
        equal(await shard.hash(), before);
        deepEqual(await shard.list(), rig.expected(number - 1));
      }
    },
  );
}

function addCutRules(add: AddRule<LayoutRig>): void {
  add("an end at any moment of a checkpoint changes nothing that can be read", async (rig) => {
    let shard = await rig.open();
    let number = 1;
    for (let round = 0; round < 16; round++) {
      await changes(shard, number, number + 4);
      number += 5;
      const before = await shard.hash();
      shard.checkpoint().catch(() => undefined);
      await rig.pass(round);
      await rig.end(round % 2 === 0 ? "power" : "kill");
      shard = await rig.open();
      equal(await shard.hash(), before);
    }
    deepEqual(await shard.list(), rig.expected(number - 1));
  });
}

function changes(shard: LayoutShard, from: number, to: number): Promise<number[]> {
  return Promise.all(numbers(from, to).map((number) => shard.change(number)));
}

const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);

const isEqual = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length && one.every((each, at) => each === other[at]);
