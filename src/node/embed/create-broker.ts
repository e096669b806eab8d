// A broker in three lines, for programs and their tests: in memory or in a folder, on any free port,
// several in one process. `createBroker({ memory: true, clock: "manual" })` is a broker whose time
// the test turns and whose power it cuts.

import {
  type Cancel,
  type Clock,
  type CodedError,
  type Logger,
  nodeNetwork,
  silentLogger,
  systemClock,
} from "../../base/index.ts";
import type { Hooks } from "../../broker/index.ts";
import { MemoryMachine, memorySegmentBytes } from "../../store/index.ts";
import type { BoundListener, Components } from "../assemble.ts";
import { createSettings } from "../config/config.ts";
import type { Settings } from "../config/keys.ts";
import { nodeErrors } from "../errors.ts";
import { startNode } from "../local.ts";
import type { RunningNode } from "../node.ts";
import { type BrokerEventName, type BrokerListener, EventHub } from "./events.ts";
import type { Inside } from "./inside.ts";
import { ManualClock } from "./manual-clock.ts";
import { MortalProcess } from "./mortal.ts";

export type BrokerOptions = {
  /** All in memory: nothing is left of it, and `crash` works. */
  readonly memory?: boolean;
  /** Folder of the data, where it is not in memory. */
  readonly dir?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** `manual`: time stands still but for `clock.advance`. */
  readonly clock?: "system" | "manual";
  /** Anything else of the configuration, in the shape of its file. */
  readonly settings?: object;
  /** Decides what a crash leaves of writes that were not synced. Default 1. */
  readonly seed?: number | string;
  readonly logger?: Logger;
  /** Decide what clients may do; several are asked in their order. */
  readonly hooks?: Hooks | readonly Hooks[];
};

export type BrokerClock = {
  wallUs(): number;
  /** Moves time on and runs what falls due. @throws NODE_CLOCK_NOT_MANUAL. */
  advance(durationMs: number): Promise<void>;
};

export interface EmbeddedBroker extends Inside {
  readonly clock: BrokerClock;
  /** `mqtt://127.0.0.1:PORT`. The same after a crash. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly listeners: readonly BoundListener[];
  /** Of the last start. */
  readonly readyMs: number;
  /**
   * Rejects with the first error after which nothing more is acknowledged; never resolves. Close the
   * broker then. A program that does not look at it is not ended by it.
   */
  readonly failed: Promise<never>;
  /**
   * Calls `listener` at each event; the result ends that. What a listener throws is logged, and a
   * promise that it returns is waited for, as for a hook.
   */
  on<E extends BrokerEventName>(event: E, listener: BrokerListener<E>): Cancel;
  /**
   * Power cut: connections are gone, what was not durable is lost, loops of `subscribe` end with
   * NODE_CRASHED. Resolves when the broker runs again on the same port.
   * @throws NODE_CRASH_IN_MEMORY_ONLY, NODE_CLOSED.
   */
  crash(): Promise<void>;
  /** Lets the clients go, flushes and closes. Once. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** @throws NODE_PLACE_MISSING, CONFIG_INVALID, NODE_*. */
export async function createBroker(options: BrokerOptions): Promise<EmbeddedBroker> {
  const { memory = false, dir } = options;
  if (memory === (dir !== undefined)) {
    const reason = memory ? "`memory` and `dir` exclude each other" : "there is neither";
    throw nodeErrors.placeMissing({ reason });
  }
  const broker = new LocalBroker(options);
  await broker.start();
  return broker;
}

class LocalBroker implements EmbeddedBroker {
  readonly clock: BrokerClock;
  readonly failed: Promise<never>;
  readonly #options: BrokerOptions;
  readonly #events = new EventHub();
  readonly #manual: ManualClock | undefined;
  readonly #machine: MemoryMachine | undefined;
  #fail: (error: CodedError) => void = () => undefined;
  #node: RunningNode | undefined;
  #process: MortalProcess | undefined;
  #port: number;
  #starting: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: BrokerOptions) {
    this.#options = options;
    this.#port = options.port ?? 0;
    const manual = options.clock === "manual" ? new ManualClock() : undefined;
    this.#manual = manual;
    this.#machine =
      options.memory === true ? new MemoryMachine(this.#base, options.seed) : undefined;
    this.clock = {
      wallUs: () => this.#base.wallUs(),
      advance: async (durationMs) => {
        if (manual === undefined) throw nodeErrors.clockNotManual();
        await manual.advance(durationMs);
      },
    };
    this.failed = new Promise<never>((_resolve, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => undefined); // it is for those who look
  }

  get #base(): Clock {
    return this.#manual ?? systemClock;
  }

  get #running(): RunningNode {
    if (this.#node === undefined) throw nodeErrors.closed();
    return this.#node;
  }

  get listeners(): readonly BoundListener[] {
    return this.#running.listeners;
  }

  get readyMs(): number {
    return this.#running.readyMs;
  }

  get host(): string {
    return this.#options.host ?? "127.0.0.1";
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    const { host } = this;
    return `mqtt://${host.includes(":") ? `[${host}]` : host}:${this.#port}`;
  }

  async start(): Promise<void> {
    const { logger = silentLogger } = this.#options;
    const process = new MortalProcess({ clock: this.#base, network: nodeNetwork, logger });
    const settings = this.#settings();
    const node = await startNode(settings, this.#components(process));
    this.#process = process;
    this.#node = node;
    this.#port = node.listeners[0]?.port ?? this.#port;
    node.failed.then((error) => this.#fail(error)).catch(() => undefined); // it never rejects
  }

  publish: Inside["publish"] = (...args) => this.#inside((inside) => inside.publish(...args));

  subscribe: Inside["subscribe"] = (...args) => this.#inside((inside) => inside.subscribe(...args));

  retained: Inside["retained"] = (...args) => this.#inside((inside) => inside.retained(...args));

  transact: Inside["transact"] = (...args) => this.#inside((inside) => inside.transact(...args));

  history: Inside["history"] = (...args) => this.#running.inside.history(...args);

  on<E extends BrokerEventName>(event: E, listener: BrokerListener<E>): Cancel {
    return this.#events.on(event, listener);
  }

  crash(): Promise<void> {
    if (this.#machine === undefined) return Promise.reject(nodeErrors.crashInMemoryOnly());
    if (this.#closed !== undefined) return Promise.reject(nodeErrors.closed());
    this.#starting ??= this.#crash(this.#machine).finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #inside<T>(call: (inside: Inside) => Promise<T>): Promise<T> {
    return call(this.#running.inside);
  }

  async #crash(machine: MemoryMachine): Promise<void> {
    const { inside } = this.#running;
    this.#node = undefined;
    machine.crash();
    inside.abandon(nodeErrors.crashed());
    await this.#process?.kill();
    await this.start();
  }

  async #close(): Promise<void> {
    await this.#starting?.catch(() => undefined); // told to who called `crash`
    const closing = this.#node?.close() ?? Promise.resolve();
    this.#node = undefined;
    await (this.#manual === undefined ? closing : this.#manual.free(closing));
    await this.#process?.kill();
  }

  #settings(): Settings {
    const { memory, dir, host, settings = {} } = this.#options;
    const given = settings as { readonly data?: object; readonly log?: object };
    const small = memory === true ? { segmentBytes: `${memorySegmentBytes / 1024}KiB` } : {};
    const ballast = memory === true ? { ballast: "0" } : {};
    return createSettings({
      listeners: { mqtt: { host: host ?? "127.0.0.1", port: this.#port } },
      ...settings,
      data: { dir: dir ?? "memory", ...ballast, ...given.data },
      log: { ...small, ...given.log },
    });
  }

  #components({ clock, network, logger }: MortalProcess): Partial<Components> {
    const machine = this.#machine;
    const { hooks: given = [] } = this.#options;
    const hooks = [...[given].flat(), this.#events.hooks];
    if (machine === undefined) return { clock, network, logger, hooks };
    const { kv } = machine;
    return {
      hooks,
      clock,
      network,
      logger,
      kv,
      disk: machine.disk.attach(),
      random: machine.nextRandom(),
    };
  }
}
