// Claims on simulated Raft hosts whose leaders change often: leaders cook on their state, take their
// time, and propose what they cooked whatever happened meanwhile. No replica may apply what was
// cooked on another state than it holds.

import { expect, test } from "vitest";
import { isCodedError, SeededRandom } from "../../src/base/index.ts";
import {
  AppliedFence,
  Claimant,
  decodeShardCommand,
  encodeShardCommand,
} from "../../src/cluster/core/claims.ts";
import { type Fate, Fates } from "../../src/cluster/core/fates.ts";
import type { Group } from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";
import { type Cooked, CookedQueue } from "../support/cooked-queue.ts";
import { type ListMachine, RaftCluster, type Station } from "../support/raft-cluster.ts";

const seeds = isLong ? 300 : 25;
const stepMs = 40;

/** The state that batches are cooked on: each must be the next of the one before. */
class Replica {
  readonly fence = new AppliedFence();
  readonly ids: number[] = [];
  count = 0;
  refused = 0;
  #at = 0;

  /** Takes what the machine has applied meanwhile. */
  update(
    machine: ListMachine,
    judged: (index: number, verdict: string, term: number) => void,
  ): void {
    for (; this.#at < machine.texts.length; this.#at++) {
      const [index, term] = [machine.indexes[this.#at], machine.terms[this.#at]];
      const command = decodeShardCommand(Buffer.from(machine.texts[this.#at] as string, "latin1"));
      if (index === undefined || term === undefined || command === undefined) {
        throw new Error("an entry cannot be read");
      }
      const verdict = this.fence.take({ index, term }, command);
      if (verdict === "refused") this.refused++;
      if (verdict === "apply" && command.kind === "batch") {
        const cooked = JSON.parse(Buffer.from(command.payload).toString());
        if (cooked.number !== this.count + 1) {
          throw new Error(`applied ${cooked.number} cooked on another state than ${this.count}`);
        }
        this.count++;
        this.ids.push(cooked.id);
      }
      judged(index, verdict, term);
    }
  }
}

class Leader {
  readonly station: Station;
  readonly claimant = new Claimant(1);
  readonly fates: Fates;
  replica = new Replica();
  machine: ListMachine | undefined;
  readonly cooked = new CookedQueue();

  constructor(station: Station, tell: (id: number, fate: Fate) => void) {
    this.station = station;
    this.fates = new Fates(1_000, tell);
  }
}

class ClaimRun {
  readonly #random: SeededRandom;
  readonly #cluster: RaftCluster;
  #leaders: Leader[] = [];
  readonly #fates = new Map<number, Fate>();
  #id = 0;
  claims = 0;

  constructor(seed: number) {
    this.#random = new SeededRandom(`claims ${seed}`);
    this.#cluster = new RaftCluster({ seed: `claims ${seed}` });
  }

  get refused(): number {
    return Math.max(...this.#leaders.map(({ replica }) => replica.refused));
  }

  async run(): Promise<void> {
    const cluster = this.#cluster;
    await cluster.form(3);
    this.#leaders = cluster.stations.map((station) => {
      return new Leader(station, (id, fate) => this.#tell(id, fate));
    });
    for (let step = 0; step < 400; step++) {
      for (const leader of this.#leaders) this.#turn(leader);
      if (this.#random.chance(0.04)) await this.#disturb();
      await cluster.clock.advance(stepMs);
    }
    cluster.network.mend();
    await cluster.clock.advance(10_000);
    for (const leader of this.#leaders) this.#turn(leader, false);
    for (const { fates } of this.#leaders) fates.end();
    this.#judge();
    await cluster.close();
  }

  // One word each, and the word is true.
  #judge(): void {
    const [first, ...others] = this.#leaders.map(({ replica }) => replica.ids.join());
    for (const other of others) expect(other).toBe(first);
    const applied = new Set(this.#leaders[0]?.replica.ids);
    expect(applied.size).toBeGreaterThan(20);
    for (let id = 1; id <= this.#id; id++) {
      const fate = this.#fates.get(id);
      expect(fate, `transaction ${id}`).toBeDefined();
      if (fate === "committed") expect(applied.has(id), `${id} is lost`).toBe(true);
      if (fate === "retry") expect(applied.has(id), `${id} happened`).toBe(false);
    }
  }

  #tell(id: number, fate: Fate): void {
    if (this.#fates.has(id)) throw new Error(`transaction ${id} hears a second word`);
    this.#fates.set(id, fate);
  }

  #turn(leader: Leader, cooks = true): void {
    const group = leader.station.host?.group(1);
    const machine = leader.station.machines.get(1);
    if (group === undefined || machine === undefined) return;
    if (leader.machine !== machine) {
      // A process of its own: what the one before waited for, it hears no more.
      leader.fates.end();
      this.#drop(leader.cooked.clear());
      leader.machine = machine;
      leader.replica = new Replica();
      leader.claimant.deposed();
    }
    leader.replica.update(machine, (index, verdict, term) => {
      leader.fates.applied(index, term, verdict as "apply");
    });
    if (!cooks) {
      this.#drop(leader.cooked.clear());
      return;
    }
    if (group.role === "leader") this.#claim(leader, group);
    else leader.claimant.deposed();
    this.#cook(leader);
    // Some of it long after it was cooked: in whatever term this node leads by then.
    while (group.role === "leader" && leader.cooked.size > 0 && this.#random.chance(0.5)) {
      this.#propose(leader, group);
    }
  }

  #claim(leader: Leader, group: Group): void {
    const claim = leader.claimant.elected(group.status().term);
    if (claim === undefined) return;
    this.claims++;
    // Declined while leadership is handed over: asked again.
    if (this.#send(group, encodeShardCommand(claim)) === undefined) leader.claimant.deposed();
  }

  #cook(leader: Leader): void {
    const fence = leader.claimant.fence(leader.replica.fence);
    if (fence === undefined) return;
    leader.cooked.cook(++this.#id, fence, leader.replica.count);
  }

  #propose(leader: Leader, group: Group): void {
    const cooked = leader.cooked.take() as Cooked;
    const { id, number, fence } = cooked;
    const payload = Buffer.from(JSON.stringify({ id, number }));
    const sent = this.#send(
      group,
      encodeShardCommand({ kind: "batch", fence, entryKind: 1, payload }),
    );
    if (sent !== undefined) leader.fates.proposed(id, sent.index, sent.term);
    else this.#drop(leader.cooked.decline(cooked));
  }

  #drop(cooked: readonly Cooked[]): void {
    for (const { id } of cooked) this.#tell(id, "retry");
  }

  /** Where it stands in the log; undefined when it was refused. */
  #send(group: Group, bytes: Buffer): { index: number; term: number } | undefined {
    const before = group.status().lastIndex;
    // The list machine keeps text.
    const data = Buffer.from(bytes.toString("latin1"), "utf8");
    group.propose([{ version: 1, data }]).catch((error: unknown) => {
      if (!isCodedError(error)) throw error;
    });
    const { lastIndex: index, term } = group.status();
    return index > before ? { index, term } : undefined;
  }

  async #disturb(): Promise<void> {
    const cluster = this.#cluster;
    const station = this.#random.pick(cluster.stations);
    const what = this.#random.pick(["transfer", "transfer", "transfer", "cut", "kill"]);
    if (what === "kill") {
      cluster.stop(station, "power");
      await cluster.clock.advance(this.#random.between(10, 2_000));
      await cluster.restart(station);
      return;
    }
    if (what === "cut") {
      for (const other of cluster.stations) {
        if (other !== station) cluster.network.cut(station.siteId, other.siteId);
        if (other !== station && this.#random.chance(0.7)) {
          cluster.network.cut(other.siteId, station.siteId);
        }
      }
      cluster.clock.schedule(this.#random.between(500, 3_000), () => cluster.network.mend());
      return;
    }
    for (const { host } of cluster.stations) {
      const group = host?.group(1);
      if (group?.role === "leader" && group.node !== station.node) group.transfer(station.node);
    }
  }
}

test("what was cooked on another state is applied nowhere, and each transaction hears one true word", async () => {
  let refused = 0;
  let claims = 0;
  for (let seed = 1; seed <= seeds; seed++) {
    const run = new ClaimRun(seed);
    try {
      await run.run();
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
    refused += run.refused;
    claims += run.claims;
  }
  // Stale batches do reach the log; a run in which none does shows nothing.
  expect(refused).toBeGreaterThan(seeds);
  expect(claims).toBeGreaterThan(3 * seeds);
});
