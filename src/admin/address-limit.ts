// Open connections of one address: whoever takes many, with a key or without, leaves room for others.

import type { Server, Socket } from "node:net";

/** Closes what comes from an address beyond its part. */
export function limitPerAddress(server: Server, ofAddressMax: number): void {
  const open = new Map<string, number>();
  server.on("connection", (socket: Socket) => {
    // Undefined: it is gone already.
    const { remoteAddress: address } = socket;
    if (address === undefined) return;
    const count = (open.get(address) ?? 0) + 1;
    open.set(address, count);
    socket.once("close", () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
    if (count > ofAddressMax) socket.destroy();
  });
}
