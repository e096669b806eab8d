// The listeners of the settings, bound one after the other; all or none. What is done with an
// accepted connection is the broker's matter.

import {
  type ByteConnection,
  Closer,
  type ConnectionHandlers,
  type Network,
  toError,
} from "../base/index.ts";
import type { BoundListener } from "./assemble.ts";
import { address } from "./banner.ts";
import type { Settings } from "./config/keys.ts";
import { nodeErrors } from "./errors.ts";

/** Takes a connection accepted by the listener `name`. */
export type Accept = (connection: ByteConnection, name: string) => ConnectionHandlers;

export type OpenListeners = {
  readonly bound: readonly BoundListener[];
  /** Stops accepting; connections live on. */
  close(): Promise<void>;
};

/** @throws NODE_LISTEN_FAILED with the address; listeners bound before it are closed again. */
export async function openListeners(
  settings: Settings["listeners"],
  network: Network,
  accept: Accept,
): Promise<OpenListeners> {
  const closer = new Closer();
  const bound: BoundListener[] = [];
  for (const [name, { host, port }] of Object.entries(settings)) {
    try {
      const at = { host, port };
      const listener = closer.own(await network.listen(at, (socket) => accept(socket, name)));
      const real = "port" in listener.address ? listener.address.port : port;
      bound.push({ name, host, port: real });
    } catch (error) {
      await closer.close();
      const reason = toError(error).message;
      throw nodeErrors.listenFailed(
        { key: `listeners.${name}`, address: address(host, port), reason },
        error,
      );
    }
  }
  return { bound, close: () => closer.close() };
}
