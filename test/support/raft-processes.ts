// Real processes of the replicated key-value store, each behind byte-level proxies to its peers, and
// clients that note what they saw.

import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Operation } from "../../src/raft/index.ts";

const program = fileURLToPath(new URL("../crash/programs/raft-kv.mjs", import.meta.url));

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

/** Forwards bytes from a port of its own, until it is cut. */
class LinkProxy {
  port = 0;
  isCut = false;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  async open(targetPort: number): Promise<void> {
    this.#server = createServer((from) => {
      if (this.isCut) {
        from.destroy();
        return;
      }
      const to = connect(targetPort, "127.0.0.1");
      for (const socket of [from, to]) {
        this.#sockets.add(socket);
        socket.on("error", () => socket.destroy());
        socket.on("close", () => {
          this.#sockets.delete(socket);
          from.destroy();
          to.destroy();
        });
      }
      from.pipe(to);
      to.pipe(from);
    });
    const server = this.#server;
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    this.port = (server.address() as AddressInfo).port;
  }

  cut(): void {
    this.isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.#server?.close();
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

type Waiting = { resolve: (answer: { value?: unknown; error?: string }) => void };

export class KvNode {
  readonly node: number;
  readonly clientPort: number;
  readonly #optionsPath: string;
  readonly #waiting = new Map<number, Waiting>();
  #child: ChildProcess | undefined;
  #socket: Socket | undefined;
  #nextId = 1;
  stderr = "";

  constructor(node: number, clientPort: number, optionsPath: string) {
    this.node = node;
    this.clientPort = clientPort;
    this.#optionsPath = optionsPath;
  }

  get isUp(): boolean {
    return this.#child !== undefined;
  }

  start(): void {
    const child = spawn(process.execPath, [program, this.#optionsPath], { stdio: "pipe" });
    this.#child = child;
    child.stderr?.on("data", (text: Buffer) => {
      this.stderr = (this.stderr + text.toString()).slice(-20_000);
    });
    child.once("exit", () => {
      if (this.#child === child) this.#child = undefined;
      this.#lose();
    });
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
      const socket = connect(this.clientPort, "127.0.0.1");
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

  // Who waits runs into the time limit: the fate of a request is not known.
  #lose(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }
}

export class KvCluster {
  readonly nodes: KvNode[] = [];
  readonly #proxies = new Map<string, LinkProxy>();
  readonly histories = new Map<string, Array<{ -readonly [K in keyof Operation]: Operation[K] }>>();
  #value = 1;
  /** Moments of acknowledged writes, ms. */
  readonly acks: number[] = [];

  static async start(
    folder: string,
    count: number,
    dirOf = (node: number) => join(folder, `n${node}`),
  ): Promise<KvCluster> {
    const cluster = new KvCluster();
    const ids = Array.from({ length: count }, (_, place) => place + 1);
    const ports = new Map<number, number>();
    for (const node of ids) ports.set(node, await freePort());
    for (const node of ids) {
      const members = [];
      for (const other of ids) {
        const proxy = new LinkProxy();
        if (other !== node) await proxy.open(ports.get(other) as number);
        cluster.#proxies.set(`${node}>${other}`, proxy);
        const port = other === node ? (ports.get(node) as number) : proxy.port;
        const siteId = String(other).padStart(32, "0");
        members.push({
          node: other,
          siteId,
          name: `node${other}`,
          address: { host: "127.0.0.1", port },
        });
      }
      const clientPort = await freePort();
      const listen = { host: "127.0.0.1", port: ports.get(node) };
      const options = {
        dir: dirOf(node),
        clusterId: "ab".repeat(16),
        node,
        members,
        listen,
        clientPort,
      };
      const path = join(folder, `options${node}.json`);
      writeFileSync(path, JSON.stringify(options));
      cluster.nodes.push(new KvNode(node, clientPort, path));
    }
    for (const node of cluster.nodes) node.start();
    return cluster;
  }

  cut(from: number, to: number): void {
    this.#proxies.get(`${from}>${to}`)?.cut();
  }

  mend(): void {
    for (const proxy of this.#proxies.values()) proxy.isCut = false;
  }

  async close(): Promise<void> {
    for (const node of this.nodes) {
      node.signal("SIGCONT");
      await node.stop("SIGKILL");
    }
    for (const proxy of this.#proxies.values()) proxy.close();
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

  /** Reads every key at every node, as the last operations of its history. */
  async readAll(withinMs = 60_000): Promise<void> {
    const endMs = performance.now() + withinMs;
    for (const [key, history] of this.histories) {
      for (const node of this.nodes) {
        for (;;) {
          const begin = performance.now();
          const value = (await node.ask({ op: "get", key }, 2_000))?.value;
          if (typeof value === "number") {
            history.push({ kind: "read", value, begin, end: performance.now() });
            break;
          }
          if (begin > endMs) throw new Error(`node ${node.node} does not answer:\n${node.stderr}`);
          await sleep(100);
        }
      }
    }
  }

  /** The longest time without an acknowledged write. */
  longestStallMs(): number {
    const moments = [...this.acks].sort((one, other) => one - other);
    let longest = 0;
    for (const [place, moment] of moments.entries()) {
      longest = Math.max(longest, moment - (moments[place - 1] ?? moment));
    }
    return longest;
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
