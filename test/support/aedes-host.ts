// An Aedes on our persistence, on a machine in memory that can lose its power, and MQTT.js clients
// that talk to it over TCP.

import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { Aedes } from "aedes";
import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import { StorePersistence } from "../../src/aedes/index.ts";
import type { PersistenceOptions } from "../../src/aedes/persistence.ts";
import { type SeededRandom, systemClock } from "../../src/base/index.ts";
import {
  type LocalStore,
  type MapShard,
  MemoryMachine,
  openLocalStore,
  type Store,
} from "../../src/store/index.ts";

export type Host = {
  readonly aedes: Aedes;
  readonly persistence: StorePersistence;
  readonly store: LocalStore;
};

export class AedesMachine {
  readonly memory = new MemoryMachine(systemClock);
  readonly #clients: MqttClient[] = [];
  host: Host | undefined;
  #server: Server | undefined;

  get #port(): number {
    const address = this.#server?.address() as AddressInfo | undefined;
    if (address === undefined) throw new Error("no host runs");
    return address.port;
  }

  /** With `uneven`, what is read from the store comes after a drawn number of turns. */
  async start(options: PersistenceOptions = {}, uneven?: SeededRandom): Promise<Host> {
    const { store, close } = await openLocalStore({ memory: this.memory });
    const read = uneven === undefined ? store : withUnevenReads(store, uneven);
    const persistence = new StorePersistence({ store: read, close }, options);
    // The types of Aedes name the persistence of old, with callbacks.
    const aedes = await Aedes.createBroker({ id: "host", persistence: persistence as never });
    const server = createServer(aedes.handle);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#server = server;
    this.host = { aedes, persistence, store };
    return this.host;
  }

  /** Power cut: the old host is never heard of again. */
  crash(): void {
    this.memory.crash();
    for (const client of this.#clients.splice(0)) client.end(true);
    this.#server?.close();
    this.host?.aedes.close();
    this.host = undefined;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#clients.splice(0).map((client) => client.endAsync(true)));
    const { host } = this;
    if (host === undefined) return;
    this.#server?.close();
    await new Promise<void>((resolve) => host.aedes.close(resolve));
    await host.persistence.destroy();
    this.host = undefined;
  }

  /** `watch` sees the client before anything arrives. */
  async connect(
    options: IClientOptions,
    watch: (client: MqttClient) => void = () => undefined,
  ): Promise<MqttClient> {
    const client = mqtt.connect(`mqtt://127.0.0.1:${this.#port}`, {
      ...{ reconnectPeriod: 0, protocolVersion: 4, ...options },
    });
    this.#clients.push(client);
    client.on("error", () => undefined);
    watch(client);
    await new Promise<void>((resolve) => {
      client.once("connect", () => resolve());
    });
    return client;
  }
}

/** Reads of one moment end in any order; writes are as they were. */
function withUnevenReads(store: Pick<Store, "state">, random: SeededRandom): Pick<Store, "state"> {
  const later = async (): Promise<void> => {
    for (let turns = random.between(0, 4); turns > 0; turns--) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  return {
    state: (ownerKey) => {
      const shard = store.state(ownerKey);
      const get: MapShard["get"] = async (key) => {
        await later();
        return shard.get(key);
      };
      return new Proxy(shard, {
        get: (target, name) => {
          if (name === "get") return get;
          const value: unknown = Reflect.get(target, name);
          return typeof value === "function" ? value.bind(target) : value;
        },
      });
    },
  };
}
