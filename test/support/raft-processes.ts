// Real processes of the replicated key-value store, and clients that note what they saw. Clients
// reach them by Unix sockets, which no fault of the network touches.

import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Operation } from "../../src/raft/index.ts";
import { type Links, ProxyLinks } from "./raft-links.ts";

const program = fileURLToPath(new URL("../crash/programs/raft-kv.mjs", import.meta.url));

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

/** Work that is timed, in ms of a processor: long enough that others get their turn meanwhile. */
const yardstickMs = 30;

/** How much longer work takes on this machine now than on a processor of its own, 1 or more. */
export function slowdownNow(): number {
  const begin = performance.now();
  const before = process.cpuUsage();
  let usedMs = 0;
  while (usedMs < yardstickMs) {
    const { user, system } = process.cpuUsage(before);
    usedMs = (user + system) / 1_000;
  }
  return Math.max(1, (performance.now() - begin) / usedMs);
}

/** Far more than anything takes on a machine of its own. */
const waitMsMax = 300_000;
const patienceMs = 90_000;

/** A pause between two acknowledged writes that is worth a word: a fail-over, or nearly one. */
const stallMs = 500;

type Waiting = { resolve: (answer: { value?: unknown; error?: string } | undefined) => void };

export class KvNode {
  readonly node: number;
  readonly #clientPath: string;
  readonly #command: readonly string[];
  readonly #waiting = new Map<number, Waiting>();
  #child: ChildProcess | undefined;
  #socket: Socket | undefined;
  #nextId = 1;
  /** The end of it. */
  stderr = "";
  readonly #events = new Map<string, number>();

  constructor(node: number, clientPath: string, command: readonly string[]) {
    this.node = node;
    this.#clientPath = clientPath;
    this.#command = command;
  }

  get isUp(): boolean {
    return this.#child !== undefined;
  }

  start(): void {
    const [file = process.execPath, ...words] = this.#command;
    const child = spawn(file, words, { stdio: "pipe" });
    this.#child = child;
    createInterface({ input: child.stderr }).on("line", (line) => {
      this.stderr = `${this.stderr}${line}\n`.slice(-20_000);
      const [event = ""] = line.split(" ");
      this.#events.set(event, this.timesTold(event) + 1);
    });
    child.once("exit", () => {
      if (this.#child === child) this.#child = undefined;
      this.#lose();
    });
  }

  /** How often it has logged the event, over all its lives. */
  timesTold(event: string): number {
    return this.#events.get(event) ?? 0;
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await gone;
  }

  /** SIGSTOP and SIGCONT. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Undefined when no answer came in time: the fate is open. */
  async ask(
    request: object,
    withinMs = 3_000,
  ): Promise<{ value?: unknown; error?: string } | undefined> {
    const socket = this.#socket ?? (await this.#connect());
    if (socket === undefined) return { error: "NOT_SENT" };
    const id = this.#nextId++;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        resolve(undefined);
      }, withinMs);
      this.#waiting.set(id, {
        resolve: (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
      });
      socket.write(`${JSON.stringify({ id, ...request })}\n`);
    });
  }

  #connect(): Promise<Socket | undefined> {
    return new Promise((resolve) => {
      const socket = connect(this.#clientPath);
      socket.once("connect", () => {
        this.#socket = socket;
        const lines = createInterface({ input: socket });
        // The socket's own handler tells; the reader would throw it once more.
        lines.on("error", () => undefined);
        lines.on("line", (line) => {
          const { id, ...answer } = JSON.parse(line);
          this.#waiting.get(id)?.resolve(answer);
          this.#waiting.delete(id);
        });
        resolve(socket);
      });
      socket.on("error", () => resolve(undefined));
      socket.once("close", () => {
        if (this.#socket === socket) this.#lose();
      });
    });
  }

  // The fate of what was asked is not known.
  #lose(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
    for (const { resolve } of this.#waiting.values()) resolve(undefined);
    this.#waiting.clear();
  }
}

export class KvCluster {
  readonly nodes: KvNode[] = [];
  readonly links: Links;
  readonly histories = new Map<string, Array<{ -readonly [K in keyof Operation]: Operation[K] }>>();
  #value = 1;
  /** Moments of acknowledged writes, ms. */
  readonly acks: number[] = [];

  private constructor(links: Links) {
    this.links = links;
  }

  static async start(
    folder: string,
    count: number,
    given: { readonly dirOf?: (node: number) => string; readonly links?: Links } = {},
  ): Promise<KvCluster> {
    const { dirOf = (node) => join(folder, `n${node}`) } = given;
    const links = given.links ?? (await ProxyLinks.open(folder, count));
    const cluster = new KvCluster(links);
    const ids = Array.from({ length: count }, (_, place) => place + 1);
    for (const node of ids) {
      const members = ids.map((other) => ({
        node: other,
        siteId: String(other).padStart(32, "0"),
        name: `node${other}`,
        address: links.address(node, other),
      }));
      const options = {
        dir: dirOf(node),
        clusterId: "ab".repeat(16),
        node,
        members,
        listen: links.listen(node),
        clientPath: join(folder, `clients${node}`),
      };
      const path = join(folder, `options${node}.json`);
      writeFileSync(path, JSON.stringify(options));
      const command = [...links.command(node), process.execPath, program, path];
      cluster.nodes.push(new KvNode(node, options.clientPath, command));
    }
    for (const node of cluster.nodes) node.start();
    return cluster;
  }

  async close(): Promise<void> {
    for (const node of this.nodes) {
      node.signal("SIGCONT");
      await node.stop("SIGKILL");
    }
    this.links.close();
  }

  async leader(): Promise<KvNode | undefined> {
    for (const node of this.nodes) {
      const status = (await node.ask({ op: "status" }, 500))?.value as
        | { role?: string }
        | undefined;
      if (status?.role === "leader") return node;
    }
    return undefined;
  }

  /** A client that writes and reads one key until told to stop. */
  async client(key: string, isOver: () => boolean, padding = ""): Promise<void> {
    const history = this.histories.get(key) ?? [];
    this.histories.set(key, history);
    let place = 0;
    while (!isOver()) {
      const node = this.nodes[place % this.nodes.length] as KvNode;
      const isRead = this.#value % 4 === 0;
      const begin = performance.now();
      if (isRead) {
        this.#value++;
        const answer = await node.ask({ op: "get", key }, 2_000);
        const value = answer?.value;
        if (typeof value === "number")
          history.push({ kind: "read", value, begin, end: performance.now() });
        else place++;
      } else {
        const value = this.#value++;
        const operation = { kind: "write" as const, value, begin, end: Number.POSITIVE_INFINITY };
        history.push(operation);
        const answer = await node.ask({ op: "put", key, value, padding });
        if (answer?.value === value) {
          operation.end = performance.now();
          this.acks.push(operation.end);
        } else {
          if (answer !== undefined && didNotHappen.has(answer.error ?? "")) {
            history.splice(history.indexOf(operation), 1);
          }
          place++;
          await sleep(20);
        }
      }
    }
  }

  /**
   * Until so many writes are acknowledged from now on, and `isDone`. On a machine that has too much to
   * do a tenth of them is enough, later; where even that does not come, all that the nodes said is
   * thrown.
   */
  async untilAcked(count: number, isDone = (): boolean => true): Promise<void> {
    const [before, beginMs] = [this.acks.length, performance.now()];
    const isEnough = (): boolean => {
      const [acked, tookMs] = [this.acks.length - before, performance.now() - beginMs];
      return acked >= count || (tookMs > patienceMs && acked >= count / 10);
    };
    await this.until(() => isDone() && isEnough(), `of ${count} writes not enough came`);
  }

  /** Throws `what`, and all that the nodes said, when it takes too long. */
  async until(isDone: () => boolean, what: string): Promise<void> {
    const endMs = performance.now() + waitMsMax;
    while (!isDone()) {
      if (performance.now() > endMs) throw new Error(`${what}:\n${this.#told()}`);
      await sleep(50);
    }
  }

  /** Reads every key at every node, as the last operations of its history. */
  async readAll(): Promise<void> {
    const endMs = performance.now() + waitMsMax;
    for (const [key, history] of this.histories) {
      for (const node of this.nodes) {
        for (;;) {
          const begin = performance.now();
          const value = (await node.ask({ op: "get", key }, 2_000))?.value;
          if (typeof value === "number") {
            history.push({ kind: "read", value, begin, end: performance.now() });
            break;
          }
          if (begin > endMs) throw new Error(`node ${node.node} does not answer:\n${this.#told()}`);
          await sleep(100);
        }
      }
    }
  }

  /** What all nodes said: why one does not answer is often seen at another. */
  #told(): string {
    return this.nodes
      .map(({ node, isUp, stderr }) => `node ${node}, ${isUp ? "up" : "ended"}:\n${stderr}`)
      .join("\n");
  }

  /** Times without an acknowledged write, longest first. */
  stallsMs(): number[] {
    const moments = [...this.acks].sort((one, other) => one - other);
    const gaps = moments.map((moment, place) => moment - (moments[place - 1] ?? moment));
    return gaps.filter((gap) => gap > stallMs).sort((one, other) => other - one);
  }
}

/** The write certainly had no effect. */
const didNotHappen = new Set([
  "NOT_SENT",
  "RAFT_NOT_LEADER",
  "RAFT_LIMIT_REACHED",
  "RAFT_DISK_FULL",
  "RAFT_PROPOSAL_DROPPED",
]);
