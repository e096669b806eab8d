// A simulated machine that runs a whole node: disk, key-value stores, network and clock outlive its
// processes. Clients are the command line's own.

import {
  type LogFields,
  type Logger,
  SeededRandom,
  SimClock,
  SimDisk,
  SimNetwork,
} from "../../src/base/index.ts";
import type { ClientOptions, MqttClient, OnMessage } from "../../src/cli/mqtt-client.ts";
import { createConnector } from "../../src/cli/mqtt-connection.ts";
import { MemoryDriver } from "../../src/kv/index.ts";
import { createSettings } from "../../src/node/config/config.ts";
import { startNode } from "../../src/node/local.ts";
import type { RunningNode } from "../../src/node/node.ts";

const limitMs = 600_000;

export class NodeMachine {
  readonly clock: SimClock;
  readonly disk: SimDisk;
  readonly kv: MemoryDriver;
  readonly network: SimNetwork;
  readonly events: Array<{ event: string; fields: LogFields | undefined }> = [];
  readonly phases: string[] = [];
  readonly #random = new SeededRandom(11);
  #process: ReturnType<SimClock["createProcess"]> | undefined;
  #boots = 0;

  constructor() {
    const random = this.#random;
    this.clock = new SimClock({ random: random.split("clock") });
    this.disk = new SimDisk({ clock: this.clock, random });
    this.kv = new MemoryDriver({ clock: this.clock, random });
    this.network = new SimNetwork({ clock: this.clock, random });
  }

  /** Begins to start a process; its clock stands until the test turns it. */
  start(config: object = {}): Promise<RunningNode> {
    this.#process = this.clock.createProcess();
    const small = {
      log: { segmentBytes: "128KiB" },
      data: { dir: "data", ballast: "0" },
      ...config,
    };
    return startNode(createSettings(small), {
      clock: this.#process,
      random: this.#random.split(`boot ${++this.#boots}`),
      disk: this.disk.attach(),
      kv: this.kv.attach(),
      network: this.network.host(),
      logger: this.#logger(),
      phase: (name) => this.phases.push(name),
    });
  }

  boot(config: object = {}): Promise<RunningNode> {
    return this.complete(this.start(config));
  }

  complete<T>(work: Promise<T>): Promise<T> {
    return this.clock.complete(work, limitMs);
  }

  /** Power cut. */
  crash(): void {
    this.#process?.kill();
    this.network.kill("127.0.0.1");
    this.disk.crash();
    this.kv.crash();
  }

  connect(change: Partial<ClientOptions> = {}, onMessage: OnMessage = () => true) {
    const connector = createConnector({ network: this.network.host(), clock: this.clock });
    const options: ClientOptions = {
      host: "127.0.0.1",
      port: 1883,
      version: 5,
      clientId: "c",
      isClean: true,
      sessionExpiryS: undefined,
      keepAliveS: 60,
      user: undefined,
      password: undefined,
      ...change,
    };
    return this.complete<MqttClient>(connector(options, onMessage));
  }

  #logger(): Logger {
    const note = (event: string, fields?: LogFields): void => {
      this.events.push({ event, fields });
    };
    return { debug: note, info: note, warn: note, error: note };
  }
}
