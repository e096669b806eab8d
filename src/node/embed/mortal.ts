// A process that can die inside a living one: its clock, its network and its words to the outside
// end at `kill`, whatever its code still has on the way. For `crash()` of a broker in memory.

import type {
  ByteConnection,
  Cancel,
  Clock,
  ConnectionHandlers,
  Listener,
  Logger,
  Network,
} from "../../base/index.ts";

type Accept = (connection: ByteConnection) => ConnectionHandlers;

export class MortalProcess {
  readonly clock: Clock;
  readonly network: Network;
  readonly logger: Logger;
  readonly #planned = new Set<Cancel>();
  readonly #listeners = new Set<Listener>();
  readonly #connections = new Set<ByteConnection>();
  #isDead = false;

  constructor(parts: {
    readonly clock: Clock;
    readonly network: Network;
    readonly logger: Logger;
  }) {
    this.clock = this.#clockOf(parts.clock);
    this.network = this.#networkOf(parts.network);
    this.logger = this.#loggerOf(parts.logger);
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  /** Cuts connections without a word. Resolves when the addresses are free again. */
  async kill(): Promise<void> {
    this.#isDead = true;
    for (const cancel of this.#planned) cancel();
    this.#planned.clear();
    for (const connection of this.#connections) connection.destroy();
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }

  #clockOf(clock: Clock): Clock {
    return {
      wallUs: () => clock.wallUs(),
      elapsedMs: () => clock.elapsedMs(),
      schedule: (delayMs, task) => {
        if (this.#isDead) return () => undefined;
        const cancel = clock.schedule(delayMs, () => {
          this.#planned.delete(cancel);
          task();
        });
        this.#planned.add(cancel);
        return () => {
          this.#planned.delete(cancel);
          cancel();
        };
      },
      soon: (task) =>
        clock.soon(() => {
          if (!this.#isDead) task();
        }),
    };
  }

  #networkOf(network: Network): Network {
    return {
      ...network,
      listen: async (...[address, accept, ...rest]: Parameters<Network["listen"]>) => {
        const listener = await network.listen(address, this.#acceptOf(accept), ...rest);
        this.#listeners.add(listener);
        return listener;
      },
      connect: (address, open) => network.connect(address, this.#acceptOf(open)),
    };
  }

  #acceptOf(accept: Accept): Accept {
    return (connection) => {
      this.#connections.add(connection);
      const handlers = accept(connection);
      return {
        onData: (bytes) => {
          if (!this.#isDead) handlers.onData(bytes);
        },
        onDrain: () => {
          if (!this.#isDead) handlers.onDrain();
        },
        onClose: (error) => {
          this.#connections.delete(connection);
          if (!this.#isDead) handlers.onClose(error);
        },
      };
    };
  }

  #loggerOf(logger: Logger): Logger {
    const said =
      (level: keyof Logger): Logger[keyof Logger] =>
      (event, fields) => {
        if (!this.#isDead) logger[level](event, fields);
      };
    return { debug: said("debug"), info: said("info"), warn: said("warn"), error: said("error") };
  }
}
