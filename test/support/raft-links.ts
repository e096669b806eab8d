// The links between processes of a test cluster: byte-level proxies on one machine, or network
// namespaces joined by a bridge, which need root. Either can be cut both ways or one way.

import { spawnSync } from "node:child_process";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { ListenAddress } from "../../src/base/index.ts";

export interface Links {
  /** Where `node` listens. */
  listen(node: number): ListenAddress;
  /** Where `from` finds `to`. */
  address(from: number, to: number): ListenAddress;
  /** What the process of `node` is started with, before the program. */
  command(node: number): readonly string[];
  /** Nothing arrives from `from` at `to` any more. */
  cut(from: number, to: number): void;
  mend(): void;
  close(): void;
}

/** Forwards bytes from a port of its own, until it is cut. */
class LinkProxy {
  port = 0;
  isCut = false;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  async open(target: string): Promise<void> {
    this.#server = createServer((from) => {
      if (this.isCut) {
        from.destroy();
        return;
      }
      const to = connect(target);
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

/**
 * Nodes listen on sockets in a folder, and only the proxies on ports, which they hold from here on: a
 * port that is found free and let go may be given to a proxy before its node listens.
 */
export class ProxyLinks implements Links {
  readonly #folder: string;
  readonly #proxies = new Map<string, LinkProxy>();

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async open(folder: string, count: number): Promise<ProxyLinks> {
    const links = new ProxyLinks(folder);
    const ids = Array.from({ length: count }, (_, place) => place + 1);
    for (const from of ids) {
      for (const to of ids) {
        if (from === to) continue;
        const proxy = new LinkProxy();
        await proxy.open(links.#socket(to));
        links.#proxies.set(`${from}>${to}`, proxy);
      }
    }
    return links;
  }

  listen(node: number): ListenAddress {
    return { path: this.#socket(node) };
  }

  address(from: number, to: number): ListenAddress {
    const proxy = this.#proxies.get(`${from}>${to}`);
    return proxy === undefined ? this.listen(to) : { host: "127.0.0.1", port: proxy.port };
  }

  command(): readonly string[] {
    return [];
  }

  cut(from: number, to: number): void {
    this.#proxies.get(`${from}>${to}`)?.cut();
  }

  mend(): void {
    for (const proxy of this.#proxies.values()) proxy.isCut = false;
  }

  close(): void {
    for (const proxy of this.#proxies.values()) proxy.close();
  }

  #socket(node: number): string {
    return join(this.#folder, `node${node}`);
  }
}

/**
 * Each node in a namespace of its own. A cut drops packets without a word: no end of a connection
 * is seen by either side, as when a switch dies.
 */
export class NamespaceLinks implements Links {
  readonly #name = `fs${process.pid}`;
  readonly #nodes: readonly number[];

  /** Undefined without root or without namespaces. */
  static open(count: number): NamespaceLinks | undefined {
    if (process.getuid?.() !== 0 || spawnSync("ip", ["netns", "list"]).status !== 0)
      return undefined;
    const links = new NamespaceLinks(count);
    try {
      links.#create();
      return links;
    } catch {
      links.close();
      return undefined;
    }
  }

  private constructor(count: number) {
    this.#nodes = Array.from({ length: count }, (_, place) => place + 1);
  }

  listen(node: number): ListenAddress {
    return { host: `10.77.0.${node}`, port: 7000 };
  }

  address(_from: number, to: number): ListenAddress {
    return this.listen(to);
  }

  command(node: number): readonly string[] {
    return ["ip", "netns", "exec", this.#space(node)];
  }

  cut(from: number, to: number): void {
    if (from !== to)
      this.#run("-n", this.#space(from), "route", "add", "blackhole", `10.77.0.${to}/32`);
  }

  /** Packets of the node are late, lost, doubled and out of order; or only few fit, without netem. */
  impair(node: number): "lossy links" | "slow links" | "no impairment" {
    const words = ["-n", this.#space(node), "qdisc", "replace", "dev", "eth0", "root"];
    const lossy = "netem delay 40ms 30ms loss 5% duplicate 2% reorder 10%".split(" ");
    if (spawnSync("tc", [...words, ...lossy]).status === 0) return "lossy links";
    const slow = "tbf rate 100kbit burst 4kb latency 500ms".split(" ");
    return spawnSync("tc", [...words, ...slow]).status === 0 ? "slow links" : "no impairment";
  }

  /** The node's network card loses its link. */
  unplug(node: number): void {
    this.#run("-n", this.#space(0), "link", "set", `port${node}`, "down");
  }

  mend(): void {
    for (const node of this.#nodes) {
      this.#run("-n", this.#space(node), "route", "flush", "type", "blackhole");
      this.#run("-n", this.#space(0), "link", "set", `port${node}`, "up");
      // Fails when there is nothing to take away.
      spawnSync("tc", ["-n", this.#space(node), "qdisc", "del", "dev", "eth0", "root"]);
    }
  }

  close(): void {
    for (const node of [0, ...this.#nodes]) spawnSync("ip", ["netns", "del", this.#space(node)]);
  }

  // Number 0 is the switch.
  #space(node: number): string {
    return `${this.#name}-${node}`;
  }

  #create(): void {
    const hub = this.#space(0);
    this.#run("netns", "add", hub);
    this.#run("-n", hub, "link", "add", "switch", "type", "bridge");
    this.#run("-n", hub, "link", "set", "switch", "up");
    for (const node of this.#nodes) {
      const own = this.#space(node);
      this.#run("netns", "add", own);
      const pair = ["link", "add", `port${node}`, "type", "veth", "peer", "name", "eth0"];
      this.#run("-n", hub, ...pair, "netns", own);
      this.#run("-n", hub, "link", "set", `port${node}`, "master", "switch", "up");
      this.#run("-n", own, "addr", "add", `10.77.0.${node}/24`, "dev", "eth0");
      for (const card of ["lo", "eth0"]) this.#run("-n", own, "link", "set", card, "up");
    }
  }

  #run(...words: string[]): void {
    const { status, stderr } = spawnSync("ip", words, { encoding: "utf8" });
    if (status !== 0) throw new Error(`ip ${words.join(" ")}: ${stderr}`);
  }
}
