// A simulated network between named hosts. Bytes arrive in order, cut in drawn chunks after drawn
// delays; links can go silent in one direction, connections can be reset, hosts killed or switched
// off. Everything follows from the seed and the order of calls.
//
// Invariants: bytes are never lost, repeated or reordered within a connection; it ends instead. No
// handler of a dead host is called. The memory given to `onData` is overwritten after the call.
// The pipes and endpoints are in `sim-connection.ts`.

import type { Cancel, Clock } from "./clock.ts";
import {
  type ByteConnection,
  type ConnectionHandlers,
  formatAddress,
  type ListenAddress,
  type Listener,
  type Network,
  networkErrors,
} from "./network.ts";
import type { SeededRandom } from "./random.ts";
import { SimConnection, type SimWire } from "./sim-connection.ts";

export type SimNetworkOptions = {
  readonly clock: Clock;
  readonly random: SeededRandom;
  /** Bounds of the drawn delay of a chunk or a connect; default 0.05-1 ms. */
  readonly delayMs?: readonly [low: number, high: number];
  /** Bytes that the system's buffers take in each direction; default 64 KiB. */
  readonly windowBytes?: number;
  /** One delivery in so many is cut at a drawn place, the others are whole; default 1: all. */
  readonly cutEvery?: number;
};

/** One end of a connection, named for tests that pick which to cut. */
export type SimLink = { readonly from: string; readonly to: string; readonly port: string };

type Accept = (connection: ByteConnection) => ConnectionHandlers;
type SimListener = { readonly host: string; readonly accept: Accept };
type Pair = {
  readonly link: SimLink;
  readonly client: SimConnection;
  readonly server: SimConnection;
};

const loopback = new Set(["127.0.0.1", "::1", "localhost"]);
const anyAddress = new Set(["0.0.0.0", "::"]);
const firstFreePort = 49_152;
/** As Linux gives up on a peer that does not answer. */
const connectTimeoutMs = 127_000;
const defaultWindowBytes = 64 * 1024;

export class SimNetwork {
  readonly #options: SimNetworkOptions;
  readonly #random: SeededRandom;
  readonly #listeners = new Map<string, SimListener>();
  readonly #silent = new Map<string, number>();
  readonly #parked = new Set<() => void>();
  readonly #generations = new Map<string, number>();
  #pairs = new Set<Pair>();
  #nextPort = firstFreePort;

  constructor(options: SimNetworkOptions) {
    this.#options = options;
    this.#random = options.random.split("network");
  }

  /** The network as the processes of one host use it. */
  host(name = "127.0.0.1"): Network {
    const generation = this.#generation(name);
    const isAlive = (): boolean => generation === this.#generation(name);
    return {
      listen: (address, accept) =>
        isAlive() ? this.#listen(name, address, accept) : new Promise(() => undefined),
      connect: (address, open) => this.#connect(name, address, { open, isAlive }),
    };
  }

  /**
   * From now on nothing from one host reaches the other. The result lets what is waiting through.
   */
  silence(from: string, to: string): Cancel {
    const key = `${from}>${to}`;
    this.#silent.set(key, (this.#silent.get(key) ?? 0) + 1);
    let isDone = false;
    return () => {
      if (isDone) return;
      isDone = true;
      const left = (this.#silent.get(key) ?? 1) - 1;
      if (left === 0) this.#silent.delete(key);
      else this.#silent.set(key, left);
      this.#unpark();
    };
  }

  /** Resets matching connections: both ends are told. Returns how many. */
  reset(matches: (link: SimLink) => boolean = () => true): number {
    const cut = [...this.#pairs].filter((pair) => matches(pair.link));
    for (const { client, server } of cut) {
      client.cut("ECONNRESET");
      server.cut("ECONNRESET");
    }
    return cut.length;
  }

  /** The processes of a host die: their listeners are gone and their peers are told. */
  kill(host: string): void {
    for (const connection of this.#leave(host)) connection.die();
  }

  /**
   * The host loses power: its peers are told nothing. Its name may be used again at once; `silence`
   * it as well if connecting to it shall time out instead of being refused.
   */
  powerOff(host: string): void {
    for (const connection of this.#leave(host)) connection.vanish();
  }

  get connectionCount(): number {
    return this.#pairs.size;
  }

  /** Ends what runs on a host; returns its ends of connections. */
  #leave(host: string): SimConnection[] {
    this.#generations.set(host, this.#generation(host) + 1);
    for (const [key, listener] of this.#listeners) {
      if (listener.host === host) this.#listeners.delete(key);
    }
    const left = [];
    for (const { link, client, server } of this.#pairs) {
      if (link.from === host) left.push(client);
      if (link.to === host) left.push(server);
    }
    return left;
  }

  #generation(host: string): number {
    return this.#generations.get(host) ?? 0;
  }

  async #listen(host: string, address: ListenAddress, accept: Accept): Promise<Listener> {
    const bound = this.#bind(host, address);
    const key = keyOf(host, bound);
    if (this.#listeners.has(key)) {
      throw networkErrors.addressInUse({ address: formatAddress(address), errno: "EADDRINUSE" });
    }
    const listener = { host, accept };
    this.#listeners.set(key, listener);
    return {
      address: bound,
      failedAccepts: 0,
      close: async () => {
        if (this.#listeners.get(key) === listener) this.#listeners.delete(key);
      },
    };
  }

  #bind(host: string, address: ListenAddress): ListenAddress {
    if ("path" in address) return address;
    const isOurs =
      address.host === host || loopback.has(address.host) || anyAddress.has(address.host);
    if (!isOurs) {
      const details = { address: formatAddress(address), errno: "EADDRNOTAVAIL" };
      throw networkErrors.addressInvalid(details);
    }
    if (address.port !== 0) return address;
    while (this.#listeners.has(keyOf(host, { ...address, port: this.#nextPort }))) this.#nextPort++;
    return { host: address.host, port: this.#nextPort++ };
  }

  #connect(
    from: string,
    address: ListenAddress,
    client: { readonly open: Accept; readonly isAlive: () => boolean },
  ): Promise<ByteConnection> {
    const to = "path" in address || loopback.has(address.host) ? from : address.host;
    const { clock } = this.#options;
    const details = { address: formatAddress(address) };
    return new Promise((resolve, reject) => {
      let isGivenUp = false;
      const giveUp = clock.schedule(connectTimeoutMs, () => {
        isGivenUp = true;
        reject(networkErrors.failed({ ...details, errno: "ETIMEDOUT" }));
      });
      const attempt = (): void => {
        if (isGivenUp) return;
        if (!client.isAlive()) {
          giveUp();
          return;
        }
        if (this.#isSilent(from, to) || this.#isSilent(to, from)) {
          this.#parked.add(later);
          return;
        }
        giveUp();
        const key = keyOf(to, address);
        const listener = this.#listeners.get(key);
        if (listener === undefined) {
          reject(networkErrors.refused({ ...details, errno: "ECONNREFUSED" }));
          return;
        }
        resolve(this.#join({ from, to, port: key }, client.open, listener.accept));
      };
      const later = (): void => {
        clock.schedule(this.#delayMs(), attempt);
      };
      later();
    });
  }

  #join(link: SimLink, open: Accept, accept: Accept): ByteConnection {
    const remote = `${link.from}:${this.#nextPort++}`;
    const client = new SimConnection(link.port, this.#wire(link.from, link.to));
    const server = new SimConnection(remote, this.#wire(link.to, link.from));
    const pair = { link, client, server };
    this.#pairs.add(pair);
    const left = (): void => {
      if (client.isClosed && server.isClosed) this.#pairs.delete(pair);
    };
    client.pairWith(server, left);
    server.pairWith(client, left);
    server.serve(accept(server));
    client.serve(open(client));
    return client;
  }

  /** What a connection needs of the network in its sending direction. */
  #wire(from: string, to: string): SimWire {
    return {
      random: this.#random,
      windowBytes: this.#options.windowBytes ?? defaultWindowBytes,
      cuts: () => this.#random.below(this.#options.cutEvery ?? 1) === 0,
      later: (task) => {
        this.#options.clock.schedule(this.#delayMs(), task);
      },
      isSilent: () => this.#isSilent(from, to),
      park: (task) => this.#parked.add(task),
    };
  }

  #isSilent(from: string, to: string): boolean {
    return this.#silent.has(`${from}>${to}`);
  }

  #unpark(): void {
    const waiting = [...this.#parked];
    this.#parked.clear();
    for (const task of waiting) task();
  }

  #delayMs(): number {
    const [low, high] = this.#options.delayMs ?? [0.05, 1];
    return low + ((high - low) * this.#random.below(1000)) / 1000;
  }
}

function keyOf(host: string, address: ListenAddress): string {
  return "path" in address ? `${host}:${address.path}` : `${host}:${address.port}`;
}
