// What this version's nodes are assembled of. So far the listeners alone: no broker is plugged in,
// so an accepted connection is closed at once and said in the log.

import type { ByteConnection, ConnectionHandlers, Logger } from "../base/index.ts";
import type { Assemble } from "./assemble.ts";
import { openListeners } from "./listeners.ts";

export const assembleNode: Assemble = async ({ settings, components }) => {
  const { network, logger } = components;
  const open = await openListeners(settings.listeners, network, (connection, listener) =>
    turnAway(connection, listener, logger),
  );
  return { listeners: open.bound, close: () => open.close() };
};

function turnAway(
  connection: ByteConnection,
  listener: string,
  logger: Logger,
): ConnectionHandlers {
  logger.warn("node.connection_turned_away", { listener, remote: connection.remote });
  connection.destroy();
  return { onData: () => undefined, onDrain: () => undefined, onClose: () => undefined };
}
