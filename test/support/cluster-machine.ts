// A simulated machine that runs a node of a cluster, whole but for its broker: disk and key-value
// stores outlive its processes, clock and network are shared with the other machines.

import {
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
  SimNetwork,
  type SimProcessClock,
  toError,
} from "../../src/base/index.ts";
import {
  becomeMember,
  type ClusterNode,
  type Founding,
  membersOf,
  openClusterNode,
  prepareSite,
} from "../../src/cluster/index.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { defaultLogSettings } from "../../src/log/index.ts";
import { quickRaft } from "./replica-machine.ts";

const port = 7400;

export class ClusterWorld {
  readonly random: SeededRandom;
  readonly clock: SimClock;
  readonly network: SimNetwork;
  readonly founding: Founding;

  constructor(seed: string, founders: readonly string[]) {
    this.random = new SeededRandom(seed);
    this.clock = new SimClock({ random: this.random.split("clock") });
    const random = this.random.split("network");
    this.network = new SimNetwork({ clock: this.clock, random, cutEvery: 50 });
    const members = founders.map((name) => ({ name, address: { host: name, port } }));
    this.founding = { cluster: "sim", members };
  }
}

export class ClusterMachine {
  readonly name: string;
  readonly events: Array<{ event: string; fields: LogFields | undefined }> = [];
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  /** Undefined until it is open. */
  node: ClusterNode | undefined;
  /** Why the last start was refused, or what ended the process. */
  failure: Error | undefined;
  readonly #world: ClusterWorld;
  readonly #isFounder: boolean;
  #process: SimProcessClock | undefined;
  #lives = 0;

  constructor(name: string, world: ClusterWorld) {
    this.name = name;
    this.#world = world;
    this.#isFounder = world.founding.members.some((member) => member.name === name);
    const random = world.random.split(`machine ${name}`);
    this.disk = new SimDisk({ clock: world.clock, random });
    this.kv = new MemoryDriver({ clock: world.clock, random });
  }

  get isUp(): boolean {
    return this.#process !== undefined;
  }

  readonly logger: Logger = {
    debug: () => undefined,
    info: (event, fields) => void this.events.push({ event, fields }),
    warn: (event, fields) => void this.events.push({ event, fields }),
    error: (event, fields) => void this.events.push({ event, fields }),
  };

  /** Starts a process; `node` is there when it is open. */
  start(): void {
    const { clock: world, network, founding, random } = this.#world;
    const life = ++this.#lives;
    const clock = world.createProcess();
    this.#process = clock;
    this.failure = undefined;
    const fail = (error: Error): void => {
      if (life === this.#lives) this.failure ??= error;
    };
    openClusterNode(
      {
        ...{ dir: "data", name: this.name, raft: quickRaft },
        founding: this.#isFounder ? founding : undefined,
        listen: { host: this.name, port },
        log: { ...defaultLogSettings, segmentBytes: 64 * 1024, zeroFillBytes: 16 * 1024 },
        store: {
          ...{ shards: 2, stateShards: 1 },
          checkpoint: { bytesMax: 16 * 1024, ageMsMax: 2_000 },
        },
      },
      {
        disk: this.disk.attach(),
        kv: this.kv.attach(),
        clock,
        random: random.split(`boot ${this.name} ${life}`),
        network: network.host(this.name),
        logger: this.logger,
        onFailure: fail,
        stop: new AbortController().signal,
      },
    ).then(
      (node) => {
        if (life === this.#lives) this.node = node;
      },
      (error: unknown) => fail(toError(error)),
    );
  }

  /** Takes its empty directory into the cluster by a word to `by`, up to its first start. */
  async join(by: () => ClusterNode | undefined): Promise<void> {
    const { clock, random } = this.#world;
    const disk = this.disk.attach();
    const anyone = async (): Promise<ClusterNode> => {
      for (let node = by(); ; node = by()) {
        if (node !== undefined) return node;
        await new Promise<void>((resolve) => clock.schedule(100, resolve));
      }
    };
    const { clusterId } = (await anyone()).identity;
    const drawn = random.split(`identity ${this.name}`);
    const { siteId, diskId } = await prepareSite(disk, { dir: "data", clusterId, random: drawn });
    const address = { host: this.name, port };
    const site = { siteId, diskId, name: this.name, address, zone: "" };
    for (;;) {
      const { roster } = await anyone();
      // A process that ends tells nobody.
      const asked = roster.change({ kind: "join", site }).catch(() => undefined);
      const late = new Promise<undefined>((resolve) => {
        clock.schedule(20_000, () => resolve(undefined));
      });
      await Promise.race([asked, late]);
      const members = membersOf(roster.roster);
      if (!members.some((member) => member.diskId === diskId)) continue;
      return becomeMember(disk, "data", members);
    }
  }

  /** Ends the process at once; `power` loses what was not synced. */
  end(how: "kill" | "power"): void {
    this.#lives++;
    this.#process?.kill();
    this.#process = undefined;
    this.node = undefined;
    this.#world.network.kill(this.name);
    if (how === "kill") {
      this.disk.kill();
      this.kv.kill();
    } else {
      this.disk.crash();
      this.kv.crash();
    }
  }
}
