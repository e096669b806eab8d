// A broker in three lines, for programs and their tests: in memory or in a folder, on any free port,
// several in one process. `createBroker({ memory: true, clock: "manual" })` is a broker whose time
// the test turns and whose power it cuts.

// Node loads it at the first listen of a process: whoever waits for a broker would wait for it.
import "node:cluster";
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
import type { AdminAddress } from "../admin/operator.ts";
import type { BoundListener, Components } from "../assemble.ts";
import { createSettings } from "../config/config.ts";
import type { Settings } from "../config/keys.ts";
import { nodeErrors } from "../errors.ts";
import { startNode } from "../local.ts";
import type { RunningNode } from "../node.ts";
import {
  amountRule,
  checkArgument,
  checkOptions,
  countRule,
  isRecord,
  type Rules,
  rules,
} from "./arguments.ts";
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

/** As far as the broker itself fills in. */
type GivenSettings = {
  readonly listeners?: Readonly<Record<string, unknown>>;
  readonly data?: object;
  readonly log?: object;
};

const loggerLevels = ["debug", "info", "warn", "error"] as const;

const brokerRules: Rules<BrokerOptions> = {
  memory: rules.flag,
  dir: rules.text,
  port: countRule(0, 65_535),
  host: rules.text,
  clock: {
    expected: '"system" or "manual"',
    holds: (value) => value === "system" || value === "manual",
  },
  settings: { expected: "an object", holds: isRecord },
  seed: {
    expected: "a number or a text",
    holds: (value) => typeof value === "string" || Number.isFinite(value),
  },
  logger: {
    expected: `an object with the functions ${loggerLevels.join(", ")}`,
    holds: (value) =>
      isRecord(value) && loggerLevels.every((level) => rules.call.holds(value[level])),
  },
  // Hooks are looked at by the broker, which knows their names.
  hooks: { expected: "a set of hooks or a list", holds: (value) => typeof value === "object" },
};

export type BrokerClock = {
  wallUs(): number;
  /**
   * Moves time on and runs what falls due, turn by turn: a day takes a second or two.
   * @throws NODE_CLOCK_NOT_MANUAL, NODE_ARGUMENT_INVALID.
   */
  advance(durationMs: number): Promise<void>;
};

export interface EmbeddedBroker extends Inside {
  readonly clock: BrokerClock;
  /** `mqtt://127.0.0.1:PORT`. The same after a crash. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly listeners: readonly BoundListener[];
  /** The HTTP interface, where `settings.admin` wants one. */
  readonly admin: AdminAddress | undefined;
  /** Of the last start. */
  readonly readyMs: number;
  /**
   * Rejects with the first error after which nothing more is acknowledged (NODE_FAILED); never
   * resolves. Close the broker then. A program that does not look at it is not ended by it.
   */
  readonly failed: Promise<never>;
  /**
   * Calls `listener` at each event; the result ends that. What a listener throws is logged, and a
   * promise that it returns is waited for, as for a hook.
   */
  on<E extends BrokerEventName>(event: E, listener: BrokerListener<E>): Cancel;
  /**
   * Power cut: connections are gone, what was not durable is lost, calls that are under way and loops
   * of `subscribe` end with NODE_CRASHED. Resolves when the broker runs again on the same ports. Where
   * that fails it says why, and may be called again.
   * @throws NODE_CRASH_IN_MEMORY_ONLY, NODE_CLOSED, what a start refuses with.
   */
  crash(): Promise<void>;
  /** Lets the clients go, flushes and closes. Once. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** @throws NODE_*, BROKER_HOOKS_INVALID, CONFIG_INVALID. */
export async function createBroker(options: BrokerOptions): Promise<EmbeddedBroker> {
  checkOptions<BrokerOptions>("createBroker", options, brokerRules);
  const { memory = false, dir } = options;
  const isAddressed = options.port !== undefined || options.host !== undefined;
  if (isAddressed && (options.settings as GivenSettings | undefined)?.listeners !== undefined) {
    const reason = "`port` and `host` are for the one listener; `settings.listeners` names others";
    throw nodeErrors.argumentInvalid({ what: "createBroker", reason });
  }
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
  /** Where it listened last: the next start takes the same ports. */
  #bound: readonly BoundListener[] = [];
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
        checkArgument("the time of clock.advance", durationMs, amountRule);
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
    if (this.#node !== undefined) return this.#node;
    throw this.#closed === undefined ? nodeErrors.crashed() : nodeErrors.closed();
  }

  get listeners(): readonly BoundListener[] {
    return this.#running.listeners;
  }

  get admin(): AdminAddress | undefined {
    return this.#running.admin;
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
    const settings = this.#settings();
    const process = new MortalProcess({ clock: this.#base, network: nodeNetwork, logger });
    const node = await startNode(settings, this.#components(process));
    this.#process = process;
    this.#node = node;
    this.#bound = node.listeners;
    this.#port = node.listeners[0]?.port ?? this.#port;
    node.failed.catch((error: CodedError) => this.#fail(error));
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
    const node = this.#node;
    this.#node = undefined;
    machine.crash();
    await node?.abandon(nodeErrors.crashed());
    await this.#process?.kill();
    await this.start();
  }

  async #close(): Promise<void> {
    await this.#starting?.catch(() => undefined); // told to who called `crash`
    const node = this.#node;
    this.#node = undefined;
    const closing = node?.close() ?? Promise.resolve();
    try {
      await (this.#manual?.free(closing) ?? closing);
    } finally {
      await this.#process?.kill();
      node?.inside.abandon(nodeErrors.closed());
    }
  }

  #settings(): Settings {
    const { memory, dir, host, settings = {} } = this.#options;
    const given = settings as GivenSettings;
    const small = memory === true ? { segmentBytes: `${memorySegmentBytes / 1024}KiB` } : {};
    const ballast = memory === true ? { ballast: "0" } : {};
    const { listeners = { mqtt: { host: host ?? "127.0.0.1", port: this.#port } } } = given;
    return createSettings({
      ...settings,
      listeners: this.#onTheSamePorts(listeners),
      data: { dir: dir ?? "memory", ...ballast, ...given.data },
      log: { ...small, ...given.log },
    });
  }

  /** What was given, with the ports that the last start was given for 0. */
  #onTheSamePorts(listeners: GivenSettings["listeners"]): GivenSettings["listeners"] {
    if (!isRecord(listeners)) return listeners;
    const placed = { ...listeners };
    for (const { name, type, port } of this.#bound) {
      const listener = placed[name];
      if (type !== "unix" && isRecord(listener)) placed[name] = { ...listener, port };
    }
    return placed;
  }

  #components({ clock, network, logger }: MortalProcess): Partial<Components> {
    const machine = this.#machine;
    const { hooks: given = [] } = this.#options;
    const hooks = [...[given].flat(), this.#events.hooks];
    if (machine === undefined) return { clock, network, logger, hooks };
    return {
      hooks,
      clock,
      network,
      logger,
      kv: machine.kv.attach(),
      disk: machine.disk.attach(),
      random: machine.nextRandom(),
    };
  }
}
