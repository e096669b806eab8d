// A whole broker on simulated time, network and disk: real broker, real sessions, the real store on a
// simulated machine (or a fake one). Clients are raw MQTT; nothing moves but by `advance`.
//
//   const world = await BrokerWorld.start();
//   const s = await world.connect("s", { level: 4 });
//   s.subscribe("a/#");
//   await world.advance();
//   expect(s.take()).toEqual(["suback #1 0x01"]);

import {
  type Clock,
  type LogFields,
  SeededRandom,
  type SimClock,
  SimNetwork,
} from "../../src/base/index.ts";
import {
  type AccessPort,
  AuthChain,
  type AuthPort,
  type Broker,
  type BrokerSettings,
  brokerSettingsDefault,
  createBroker,
  everybody,
  type ListenerLimits,
  listenerLimitsDefault,
} from "../../src/broker/index.ts";
import type { ServerConnectionSettings } from "../../src/mqtt/index.ts";
import {
  createSessions,
  type SessionSettings,
  sessionSettingsDefault,
} from "../../src/session/index.ts";
import { ControlledStore } from "./controlled-store.ts";
import type { FakeOptions } from "./fake-store.ts";
import { type ConnectFields, RawMqtt } from "./raw-mqtt.ts";
import { type Death, FakeLives, MachineLives, type StoreLives } from "./store-lives.ts";

export type BrokerWorldOptions = {
  readonly settings?: Partial<Omit<BrokerSettings, "mqtt">>;
  readonly mqtt?: Partial<ServerConnectionSettings>;
  readonly sessions?: Partial<SessionSettings>;
  /** Given: a fake store of this kind instead of the real one. */
  readonly store?: FakeOptions;
  /** Of messages, in the real store. Default 2. */
  readonly shards?: number;
  readonly access?: AccessPort;
  /** Default: everybody may enter. */
  readonly auth?: AuthPort;
  readonly limits?: Partial<ListenerLimits>;
  readonly memoryBytes?: () => number;
  /** How late the broker's timers are: an event loop that has too much to do. */
  readonly lagMs?: () => number;
  readonly seed?: number | string;
};

/** Time for anything that only waits for the network or one commit. */
const calmMs = 40;

export class BrokerWorld {
  readonly network: SimNetwork;
  readonly lives: StoreLives;
  readonly logged: Array<{ event: string; fields: LogFields }> = [];
  port = 0;
  readonly #options: BrokerWorldOptions;
  #life: { readonly store: ControlledStore; readonly broker: Broker } | undefined;

  private constructor(options: BrokerWorldOptions) {
    this.#options = options;
    const { seed = 1, store, shards = 2 } = options;
    this.lives =
      store === undefined ? new MachineLives({ seed, store: { shards } }) : new FakeLives(store);
    const random = new SeededRandom(seed);
    this.network = new SimNetwork({ clock: this.clock, random, delayMs: [0.01, 0.2] });
  }

  static async start(options: BrokerWorldOptions = {}): Promise<BrokerWorld> {
    const world = new BrokerWorld(options);
    await world.open();
    return world;
  }

  get clock(): SimClock {
    return this.lives.clock;
  }

  get store(): ControlledStore {
    return this.#life!.store;
  }

  get broker(): Broker {
    return this.#life!.broker;
  }

  advance(ms = calmMs): Promise<void> {
    return this.clock.advance(ms);
  }

  /** A transport connection without CONNECT. */
  dial(host = "device"): Promise<RawMqtt> {
    return this.clock.complete(this.dialLater(host));
  }

  dialLater(host = "device"): Promise<RawMqtt> {
    return RawMqtt.open(this.network.host(host), this.port, "broker");
  }

  /** Connected; the CONNACK is still to be taken unless it says success. */
  async connect(clientId: string, fields: ConnectFields = {}): Promise<RawMqtt> {
    const client = await this.dial();
    client.connect(clientId, fields);
    await this.advance();
    if (client.lines[0] === "connack 0x00") client.lines.shift();
    return client;
  }

  events(event: string): LogFields[] {
    return this.logged.filter((line) => line.event === event).map((line) => line.fields);
  }

  /** The process or the machine dies and starts again on what is on the disk. */
  async crash(death: Death = "kill"): Promise<void> {
    this.die(death);
    await this.advance();
    await this.open();
  }

  die(death: Death): void {
    this.lives.die(death);
    if (death === "kill") this.network.kill("broker");
    else this.network.powerOff("broker");
  }

  /** SIGTERM and start again. */
  async restart(): Promise<void> {
    await this.clock.complete(this.broker.close());
    await this.clock.complete(this.lives.stop());
    await this.advance();
    await this.open();
  }

  open(): Promise<void> {
    return this.clock.complete(this.#open(), 600_000);
  }

  async #open(): Promise<void> {
    const life = await this.lives.open();
    const { settings, mqtt, sessions, access, memoryBytes, lagMs } = this.#options;
    const clock = lagMs === undefined ? life.clock : lateClock(life.clock, lagMs);
    const store = new ControlledStore(life.store, clock);
    const note = (event: string, fields: LogFields = {}): void => {
      this.logged.push({ event, fields });
    };
    const logger = { debug: () => undefined, info: note, warn: note, error: note };
    const broker = createBroker(
      {
        ...brokerSettingsDefault,
        ...settings,
        mqtt: { ...brokerSettingsDefault.mqtt, ...mqtt },
      },
      {
        clock,
        logger,
        store,
        network: this.network.host("broker"),
        random: new SeededRandom(7),
        ...(access !== undefined && { access }),
        ...(memoryBytes !== undefined && { memoryBytes }),
        createSessions: (ports) =>
          createSessions(
            { ...sessionSettingsDefault, ...sessions },
            { store, clock, logger, ...ports },
          ),
      },
    );
    this.#life = { store, broker };
    await broker.load();
    await store.start();
    broker.start();
    const { auth = new AuthChain([everybody]), limits } = this.#options;
    const listener = await broker.listen(
      { host: "0.0.0.0", port: 0 },
      { name: "tcp", auth, limits: { ...listenerLimitsDefault, ...limits } },
    );
    if ("port" in listener.address) this.port = listener.address.port;
  }
}

function lateClock(clock: Clock, lagMs: () => number): Clock {
  return {
    wallUs: () => clock.wallUs(),
    elapsedMs: () => clock.elapsedMs(),
    schedule: (delayMs, task) => clock.schedule(delayMs + lagMs(), task),
    soon: (task) => clock.soon(task),
  };
}
