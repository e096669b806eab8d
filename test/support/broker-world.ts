// A whole broker on simulated time and network: real broker, real sessions, fake store. Clients are
// raw MQTT; nothing moves but by `advance`.
//
//   const world = await BrokerWorld.start();
//   const s = await world.connect("s", { level: 4 });
//   s.subscribe("a/#");
//   await world.advance();
//   expect(s.take()).toEqual(["suback #1 0x01"]);

import { type LogFields, SeededRandom, SimClock, SimNetwork } from "../../src/base/index.ts";
import {
  type AccessPort,
  type Broker,
  type BrokerSettings,
  brokerSettingsDefault,
  createBroker,
} from "../../src/broker/index.ts";
import type { ServerConnectionSettings } from "../../src/mqtt/index.ts";
import {
  createSessions,
  type SessionSettings,
  sessionSettingsDefault,
} from "../../src/session/index.ts";
import { ControlledStore } from "./controlled-store.ts";
import { type FakeOptions, FakeStore } from "./fake-store.ts";
import { type ConnectFields, RawMqtt } from "./raw-mqtt.ts";

export type BrokerWorldOptions = {
  readonly settings?: Partial<Omit<BrokerSettings, "mqtt">>;
  readonly mqtt?: Partial<ServerConnectionSettings>;
  readonly sessions?: Partial<SessionSettings>;
  readonly store?: FakeOptions;
  readonly access?: AccessPort;
  readonly seed?: number;
};

/** Time for anything that only waits for the network or one commit. */
const calmMs = 40;

export class BrokerWorld {
  readonly clock = new SimClock();
  readonly network: SimNetwork;
  store: ControlledStore;
  broker: Broker;
  port = 0;
  readonly logged: Array<{ event: string; fields: LogFields }> = [];
  readonly #options: BrokerWorldOptions;

  private constructor(options: BrokerWorldOptions) {
    this.#options = options;
    const random = new SeededRandom(options.seed ?? 1);
    this.network = new SimNetwork({ clock: this.clock, random, delayMs: [0.01, 0.2] });
    this.store = new ControlledStore(new FakeStore(this.clock, options.store));
    this.broker = this.#createBroker();
  }

  static async start(options: BrokerWorldOptions = {}): Promise<BrokerWorld> {
    const world = new BrokerWorld(options);
    await world.#open();
    return world;
  }

  advance(ms = calmMs): Promise<void> {
    return this.clock.advance(ms);
  }

  /** A transport connection without CONNECT. */
  open(host = "device"): Promise<RawMqtt> {
    const opening = RawMqtt.open(this.network.host(host), this.port, "broker");
    return this.clock.complete(opening);
  }

  /** Connected; the CONNACK is still to be taken unless it says success. */
  async connect(clientId: string, fields: ConnectFields = {}): Promise<RawMqtt> {
    const client = await this.open();
    client.connect(clientId, fields);
    await this.advance();
    if (client.lines[0] === "connack 0x00") client.lines.shift();
    return client;
  }

  events(event: string): LogFields[] {
    return this.logged.filter((line) => line.event === event).map((line) => line.fields);
  }

  /** kill -9 and start again on what was on the disk. */
  async crash(flushed = 0): Promise<void> {
    const store = this.store.inner.crash(flushed);
    this.network.kill("broker");
    await this.#reopen(store);
  }

  /** SIGTERM and start again. */
  async restart(): Promise<void> {
    await this.clock.complete(this.broker.close());
    await this.#reopen(this.store.inner.crash());
  }

  async #reopen(store: FakeStore): Promise<void> {
    await this.advance();
    this.store = new ControlledStore(store);
    this.broker = this.#createBroker();
    await this.#open();
  }

  #createBroker(): Broker {
    const { settings, mqtt, sessions, access } = this.#options;
    const note = (event: string, fields: LogFields = {}): void => {
      this.logged.push({ event, fields });
    };
    const logger = { debug: () => undefined, info: note, warn: note, error: note };
    const { clock, store } = this;
    return createBroker(
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
        createSessions: (ports) =>
          createSessions(
            { ...sessionSettingsDefault, ...sessions },
            { store, clock, logger, ...ports },
          ),
      },
    );
  }

  async #open(): Promise<void> {
    await this.clock.complete(this.broker.load());
    await this.clock.complete(this.store.start());
    this.broker.start();
    const listener = await this.broker.listen({ host: "0.0.0.0", port: 0 });
    if ("port" in listener.address) this.port = listener.address.port;
  }
}
