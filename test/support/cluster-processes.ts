// Real processes of a cluster with a replicated store, publishers that note what was acked, and a
// judge of what all replicas hold at the end.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../../src/base/index.ts";
import {
  becomeFirstReplica,
  becomeMember,
  prepareSite,
  type Roster,
  type Site,
} from "../../src/cluster/index.ts";
import { createClassicDriver } from "../../src/kv/index.ts";
import { defaultLogSettings, type Member } from "../../src/raft/index.ts";
import { openLocalStore } from "../../src/store/index.ts";
import { type Links, ProxyLinks } from "./raft-links.ts";
import { KvNode, sleep } from "./raft-processes.ts";
import { append, appendRequest } from "./store-calls.ts";

const program = fileURLToPath(new URL("../crash/programs/cluster-node.mjs", import.meta.url));

/** `meta`, `state`, and two shards of `messages`, as the program makes them. */
export const shardGroups = [1, 2, 3, 4] as const;

export type Acked = { readonly value: string; readonly timeUs: number };
/** Value, commit time and shard of a stored TTV. */
type Stored = [value: string, timeUs: number, shard: number];
type GroupView = {
  readonly group: number;
  readonly role: string;
  readonly leader: number;
  readonly commit: number;
  readonly applied: number;
  readonly state: string;
  readonly configuration: { readonly voters: number[]; readonly learners: number[] };
};
/** As told in JSON. */
export type RosterView = Pick<Roster, "cluster" | "replicas"> & {
  readonly sites: readonly Site[];
  readonly placements: ReadonlyArray<readonly [shard: number, nodes: number[]]>;
};

/** As the program of a node has them. */
const storeSettings = {
  log: { ...defaultLogSettings, segmentBytes: 1024 * 1024, flushBytesMax: 256 * 1024 },
  store: { shards: 2, stateShards: 1 },
};

/** Appends of one publisher that are under way together. */
const burst = 8;
/** Longer than a node waits for a leader. */
const patienceMs = 20_000;

export class ClusterProcesses {
  readonly nodes: KvNode[] = [];
  readonly links: Links;
  readonly acked: Acked[] = [];
  /** When each ack came. */
  readonly ackMs: number[] = [];
  unanswered = 0;
  readonly #folder: string;

  private constructor(folder: string, links: Links) {
    this.#folder = folder;
    this.links = links;
  }

  static async start(folder: string, count: number, given?: Links): Promise<ClusterProcesses> {
    const links = given ?? (await ProxyLinks.open(folder, count));
    const cluster = new ClusterProcesses(folder, links);
    const numbers = Array.from({ length: count }, (_, place) => place + 1);
    for (const node of numbers) cluster.#add(node, numbers);
    for (const node of cluster.nodes) node.start();
    return cluster;
  }

  /**
   * Node 1, of a directory that a local store filled with so many acked TTVs, and that became the
   * first replica of a cluster.
   */
  static async grow(folder: string, links: Links, count: number): Promise<ClusterProcesses> {
    const cluster = new ClusterProcesses(folder, links);
    const dir = cluster.dirOf(1);
    const { log, store } = storeSettings;
    {
      await using opened = await openLocalStore({ dir, log, settings: store });
      for (let number = 1; number <= count; number++) {
        const value = `p0.${number}`;
        const outcome = await append(opened.store, appendRequest(`t/${number % 5}/p0`, value));
        if (outcome.kind !== "stored") throw new Error(outcome.kind);
        cluster.acked.push({ value, timeUs: outcome.timeUs });
      }
    }
    await becomeFirstReplica(
      { dir, cluster: "test", name: "n1", address: links.listen(1), log, store },
      {
        ...{ disk: nodeDisk, kv: createClassicDriver({ disk: nodeDisk }), clock: systemClock },
        ...{ random: systemRandom, logger: silentLogger },
      },
    );
    cluster.#add(1, undefined).start();
    return cluster;
  }

  /** The node starts anew with other options, and is expected to end; resolves with what it said. */
  async refusalOf(number: number, over: object): Promise<string> {
    const path = join(this.#folder, `options${number}.json`);
    const options = JSON.parse(readFileSync(path, "utf8"));
    const wrong = join(this.#folder, `wrong${number}.json`);
    writeFileSync(wrong, JSON.stringify({ ...options, ...over }));
    const child = spawn(process.execPath, [program, wrong], { stdio: "pipe" });
    let told = "";
    child.stderr.on("data", (text: Buffer) => {
      told += text.toString();
    });
    await new Promise((resolve) => child.once("close", resolve));
    return /^cannot start: .*$/m.exec(told)?.[0] ?? told;
  }

  dirOf(node: number): string {
    return join(this.#folder, `n${node}`);
  }

  async close(): Promise<void> {
    for (const node of this.nodes) {
      node.signal("SIGCONT");
      await node.stop("SIGKILL");
    }
    this.links.close();
  }

  /** The node that leads the group, as far as one of them knows. */
  async leader(group: number): Promise<KvNode | undefined> {
    for (const node of this.nodes) {
      const found = (await this.#status(node)).find((each) => each.group === group);
      if (found?.role === "leader") return node;
    }
    return undefined;
  }

  /** Publishes in bursts, at one node until that does not answer, until told to stop. */
  async publish(publisher: string, isOver: () => boolean): Promise<void> {
    let place = Number(publisher.replace(/\D/g, ""));
    for (let number = 0; !isOver(); ) {
      const node = this.nodes[place % this.nodes.length] as KvNode;
      const sent = Array.from({ length: burst }, async () => {
        const value = `${publisher}.${++number}`;
        const topic = `t/${number % 5}/${publisher}`;
        const request = { op: "append", topic, publisher, value };
        const answer = await node.ask(request, patienceMs);
        if (typeof answer?.value !== "number") {
          if (answer?.error !== "NOT_SENT") this.unanswered++;
          return false;
        }
        this.acked.push({ value, timeUs: answer.value });
        this.ackMs.push(performance.now());
        return true;
      });
      if ((await Promise.all(sent)).every((isAcked) => isAcked)) continue;
      place++;
      await sleep(20);
    }
  }

  /** Starts all that are down, and resolves when all replicas have applied the same, to the end. */
  async settle(withinMs = 180_000): Promise<void> {
    for (const node of this.nodes) if (!node.isUp) node.start();
    const endMs = performance.now() + withinMs;
    for (;;) {
      const all = await Promise.all(this.nodes.map((node) => this.#status(node)));
      if (areEqual(all)) return;
      if (performance.now() > endMs) throw new Error(`it does not settle:\n${this.told()}`);
      await sleep(100);
    }
  }

  /**
   * What is wrong with what the replicas hold: acks lost, values stored twice, publishers out of
   * order, replicas that differ. REQUIRES: `settle`.
   */
  async faults(): Promise<string[]> {
    const faults: string[] = [];
    const hashes = new Map<number, string>();
    let first: string | undefined;
    for (const node of this.nodes) {
      const name = `node ${node.node}`;
      for (const shard of shardGroups) {
        const { hash } = (await this.#ask(node, { op: "hash", shard })) as { hash: string };
        const known = hashes.get(shard) ?? hash;
        hashes.set(shard, known);
        if (hash !== known) faults.push(`${name} holds another shard ${shard} than node 1`);
      }
      const stored = (await this.#ask(node, { op: "dump" })) as Stored[];
      faults.push(...this.#judge(stored).map((fault) => `${name}: ${fault}`));
      // Shards are read side by side: only the order within each is fixed.
      const sorted = JSON.stringify(stored.sort((a, b) => a[2] - b[2] || a[1] - b[1]));
      first ??= sorted;
      if (sorted !== first) faults.push(`${name} reads other TTVs than node 1`);
    }
    return faults;
  }

  async roster(node: KvNode): Promise<RosterView> {
    return (await this.#ask(node, { op: "roster" })) as RosterView;
  }

  /** Resolves with the answer, or the sentence with which it was refused. */
  async change(node: KvNode, command: object): Promise<unknown> {
    const answer = await node.ask({ op: "change", command }, patienceMs);
    return answer?.error ?? answer?.value;
  }

  /** A new directory joins by a word to `by`; its process is started. */
  async join(number: number, by: KvNode, clusterId: string): Promise<KvNode> {
    const dir = this.dirOf(number);
    const random = systemRandom;
    const { siteId, diskId } = await prepareSite(nodeDisk, { dir, clusterId, random });
    const [name, address] = [`n${number}`, this.links.listen(number)];
    const site = { siteId, diskId, name, address, zone: "" };
    const answer = await this.change(by, { kind: "join", site });
    if (typeof answer === "string") throw new Error(answer);
    // The one that was asked may hear of what it has asked for after its leader's answer.
    let members: readonly Member[] = [];
    await this.until(`known as ${name}`, async () => {
      members = (await this.#ask(by, { op: "members" })) as Member[];
      return members.some((member) => member.name === name);
    });
    await becomeMember(nodeDisk, dir, members);
    const node = this.#add(number, undefined);
    node.start();
    return node;
  }

  /** Who votes in each group, as its leader says. */
  async voters(groups: readonly number[]): Promise<Array<string | undefined>> {
    const all = (await Promise.all(this.nodes.map((node) => this.#status(node)))).flat();
    return groups.map((group) => {
      const led = all.find((view) => view.group === group && view.role === "leader");
      return led && [...led.configuration.voters, ...led.configuration.learners].join();
    });
  }

  /** All are open and agree on a leader of each group that answers. */
  async isWhole(): Promise<boolean> {
    const all = await Promise.all(this.nodes.map((node) => this.#status(node)));
    return [0, ...shardGroups].every((number) => {
      const found = all.map((views) => views.find(({ group }) => group === number));
      const leader = found[0]?.leader ?? 0;
      const place = this.nodes.findIndex(({ node }) => node === leader);
      return found[place]?.role === "leader" && found.every((view) => view?.leader === leader);
    });
  }

  /** How many groups each node leads, in the order of the nodes. */
  async leads(): Promise<number[]> {
    const all = await Promise.all(this.nodes.map((node) => this.#status(node)));
    return all.map((views) => views.filter(({ role }) => role === "leader").length);
  }

  /** Resolves when `isDone`; else fails with what the nodes said last. */
  async until(what: string, isDone: () => Promise<boolean>, withinMs = 120_000): Promise<void> {
    const endMs = performance.now() + withinMs;
    while (!(await isDone())) {
      if (performance.now() > endMs) throw new Error(`not ${what}:\n${this.told()}`);
      await sleep(200);
    }
  }

  /** What all nodes said last. */
  told(): string {
    return this.nodes
      .map(({ node, isUp, stderr }) => `node ${node}, ${isUp ? "up" : "ended"}:\n${stderr}`)
      .join("\n");
  }

  #judge(stored: readonly Stored[]): string[] {
    const faults: string[] = [];
    const times = new Map(stored.map(([value, timeUs]) => [value, timeUs]));
    if (times.size !== stored.length) faults.push("a value is stored twice");
    const lasts = new Map<string, Acked>();
    const byNumber = (value: string): number => Number(value.split(".")[1]);
    for (const acked of [...this.acked].sort((a, b) => byNumber(a.value) - byNumber(b.value))) {
      const { value, timeUs } = acked;
      if (times.get(value) !== timeUs) {
        faults.push(`${value}, acked at ${timeUs}, is ${times.get(value) ?? "lost"}`);
      }
      const publisher = value.split(".")[0] as string;
      const last = lasts.get(publisher);
      if (last !== undefined && last.timeUs >= timeUs) {
        faults.push(`${value} is stored before ${last.value}`);
      }
      lasts.set(publisher, acked);
    }
    return faults.slice(0, 5);
  }

  async #status(node: KvNode): Promise<GroupView[]> {
    const answer = await node.ask({ op: "status" }, 1_000);
    return (answer?.value as GroupView[] | undefined) ?? [];
  }

  async #ask(node: KvNode, request: object): Promise<unknown> {
    const answer = await node.ask(request, 60_000);
    if (answer?.value === undefined) throw new Error(`node ${node.node}: ${answer?.error}`);
    return answer.value;
  }

  /** Of the first members, if `numbers` are given. */
  #add(number: number, numbers: readonly number[] | undefined): KvNode {
    const { links } = this;
    const members = numbers?.map((other) => {
      return { name: `n${other}`, address: links.address(number, other) };
    });
    const options = {
      ...{ dir: this.dirOf(number), name: `n${number}` },
      founding: members && { cluster: "test", members },
      listen: links.listen(number),
      clientPath: join(this.#folder, `clients${number}`),
      electionTicks: 10,
    };
    const path = join(this.#folder, `options${number}.json`);
    writeFileSync(path, JSON.stringify(options));
    const command = [...links.command(number), process.execPath, program, path];
    const node = new KvNode(number, options.clientPath, command);
    this.nodes.push(node);
    return node;
  }
}

function areEqual(all: readonly GroupView[][]): boolean {
  return shardGroups.every((number) => {
    const found = all.map((views) => views.find(({ group }) => group === number));
    const first = found[0];
    return found.every(
      (view) =>
        view !== undefined &&
        view.leader !== 0 &&
        view.state === "up" &&
        view.applied === first?.applied &&
        view.applied === view.commit,
    );
  });
}
