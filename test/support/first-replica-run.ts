// A local store on a simulated machine becomes the first replica of a cluster, and its process or the
// machine's power ends at one file-system step of that.
//
// Judged: afterwards the directory is either the old local one, which opens with all it had, or a
// member; a rerun finishes; and the node of the cluster that starts on it holds the same, and goes on.

import { SimNetwork, toError } from "../../src/base/index.ts";
import {
  becomeFirstReplica,
  type ClusterNode,
  type FirstReplica,
  openClusterNode,
} from "../../src/cluster/index.ts";
import { defaultLogSettings } from "../../src/log/index.ts";
import { type LocalStore, storeSettingsDefault } from "../../src/store/index.ts";
import { quickRaft } from "./replica-machine.ts";
import { stepDisk } from "./step-disk.ts";
import { append, appendRequest } from "./store-calls.ts";
import { StoreMachine } from "./store-machine.ts";

const limitMs = 600_000;
const log = { ...defaultLogSettings, segmentBytes: 64 * 1024, zeroFillBytes: 16 * 1024 };
const store = {
  ...{ shards: 2, stateShards: 1 },
  checkpoint: { ...storeSettingsDefault.checkpoint, ageMsMax: 2_000 },
};
const address = { host: "n1", port: 7400 };

/** Of all shards, by their numbers, and the last commit time of each. */
type Held = ReadonlyArray<readonly [shard: number, hash: string, appliedUs: number]>;

export type Strike = { readonly step: number; readonly how: "kill" | "power" };

export class FirstReplicaRun {
  readonly machine: StoreMachine;
  readonly #network: SimNetwork;
  #boots = 0;
  /** Calls on the disk of the last try. */
  steps = 0;
  /** Those before the first that touched the folder beside. */
  stepsBeside = 0;

  constructor(seed: number | string) {
    this.machine = new StoreMachine({ seed, store });
    const { clock, random } = this.machine;
    this.#network = new SimNetwork({ clock, random: random.split("network") });
  }

  /** Messages of several generations, some above the last checkpoint; map entries; a writer. */
  async fill(): Promise<Held> {
    const { machine } = this;
    const process = await machine.boot();
    const { clock } = machine;
    for (let count = 0; count < 24; count++) {
      const request = appendRequest(`t/${count % 5}`, `v${count}`, { publisher: `p${count % 3}` });
      await clock.complete(append(process.store, request));
      if (count === 8) await clock.complete(process.store.rotate());
      if (count === 16) await clock.complete(process.store.checkpoint());
    }
    await clock.complete(
      process.store.state("owner").transact(async (tx) => tx.put("key", Buffer.from("value"))),
    );
    await clock.complete(process.store.openWriter("writer", "p0"));
    const held = await this.#held(process.store);
    // As it ends most often: with entries that are in the log alone.
    machine.kill();
    return held;
  }

  /** Runs it, up to the strike if there is one; undefined when that ended it. */
  async become(strike?: Strike, name = "n1"): Promise<FirstReplica | undefined> {
    const { machine } = this;
    const clock = machine.clock.createProcess();
    let isStruck = false;
    this.steps = 0;
    this.stepsBeside = 0;
    const disk = stepDisk(machine.disk.attach(), (path) => {
      if (this.stepsBeside === 0 && path.startsWith("data/raft.new")) this.stepsBeside = this.steps;
      if (++this.steps !== strike?.step || isStruck) return;
      isStruck = true;
      clock.kill();
      if (strike.how === "kill") machine.kill();
      else machine.crash();
    });
    const random = machine.random.split(`become ${++this.#boots}`);
    const { logger } = machine;
    let ended: FirstReplica | Error | undefined;
    becomeFirstReplica(
      { dir: "data", cluster: "plant", name, address, log, store },
      { disk, kv: machine.kv.attach(), clock, random, logger },
    ).then(
      (done) => {
        ended = done;
      },
      (error: unknown) => {
        ended = toError(error);
      },
    );
    await machine.clock.runUntil(() => isStruck || ended !== undefined, limitMs);
    if (ended instanceof Error) throw ended;
    return isStruck ? undefined : ended;
  }

  async isMember(): Promise<boolean> {
    return this.machine.clock.complete(this.machine.disk.attach().exists("data/raft"));
  }

  /** What the local node finds in the directory. */
  async heldLocally(): Promise<Held> {
    const process = await this.machine.boot();
    const held = await this.#held(process.store);
    this.machine.kill();
    return held;
  }

  /** What the node of the cluster holds, and the commit time of one more message. */
  async heldByMember(): Promise<{ held: Held; timeUs: number; voters: string[] }> {
    const { clock } = this.machine;
    const node = await this.#open();
    const held = await this.#held(node.store);
    const appended = new Promise<number>((resolve, reject) => {
      node.store.append(appendRequest("t/new", "new"), (error, outcome) =>
        outcome?.kind === "stored" ? resolve(outcome.timeUs) : reject(error),
      );
    });
    const timeUs = await clock.complete(appended);
    const voters = node.host.status().map(({ configuration }) => configuration.voters.join());
    await clock.complete(node.close());
    this.machine.kill();
    return { held, timeUs, voters };
  }

  #open(): Promise<ClusterNode> {
    const { machine } = this;
    const { logger } = machine;
    const opening = openClusterNode(
      {
        ...{ dir: "data", name: "n1", founding: undefined, listen: address },
        ...{ raft: quickRaft, log, store },
      },
      {
        disk: machine.disk.attach(),
        kv: machine.kv.attach(),
        clock: machine.clock.createProcess(),
        random: machine.random.split(`boot ${++this.#boots}`),
        network: this.#network.host("n1"),
        logger,
        onFailure: (error) => {
          throw error;
        },
        stop: new AbortController().signal,
      },
    );
    return machine.clock.complete(opening, limitMs);
  }

  async #held({ operator }: LocalStore): Promise<Held> {
    const held: Array<readonly [number, string, number]> = [];
    for (const { number, appliedUs } of operator.shards()) {
      const hash = await this.machine.clock.complete(operator.logicalHash(number));
      held.push([number, hash, appliedUs]);
    }
    return held;
  }
}
