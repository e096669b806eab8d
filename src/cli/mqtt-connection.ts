// The MQTT client of `pub` and `sub` on a socket. Not there yet: it waits for the client side of the
// mqtt room, and until then every connection is refused with a plain sentence.

import { cliErrors } from "./errors.ts";
import type { ConnectClient } from "./mqtt-client.ts";

export const connectSocket: ConnectClient = ({ host, port }) => {
  const reason = "this build has no MQTT client yet";
  return Promise.reject(cliErrors.connectFailed({ address: `${host}:${port}`, reason }));
};
