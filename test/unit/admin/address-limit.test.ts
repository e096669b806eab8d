import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { expect, test } from "vitest";
import { limitPerAddress } from "../../../src/admin/address-limit.ts";

test("connections of one address leave room for others, and give theirs back", async () => {
  const server = createServer();
  limitPerAddress(server, 2);
  server.on("connection", (socket) => {
    if (!socket.destroyed) socket.write("hello");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const dial = (localAddress: string) => connect({ port, host: "127.0.0.1", localAddress });
  /** What comes first: a byte, or the end. */
  const first = async (localAddress: string) => {
    const socket = dial(localAddress).on("error", () => undefined);
    const outcome = await Promise.race([
      once(socket, "data").then(() => "open"),
      once(socket, "close").then(() => "closed"),
    ]);
    return { socket, outcome };
  };
  const one = await first("127.0.0.1");
  const two = await first("127.0.0.1");
  const three = await first("127.0.0.1");
  const other = await first("127.0.0.2");
  const outcomes = [one, two, three, other].map(({ outcome }) => outcome);
  expect(outcomes).toEqual(["open", "open", "closed", "open"]);
  const gone = new Promise<void>((resolve) => {
    server.getConnections((_error, before) => {
      one.socket.destroy();
      const look = (): void => {
        server.getConnections((_e, now) => (now < before ? resolve() : setImmediate(look)));
      };
      look();
    });
  });
  await gone;
  const four = await first("127.0.0.1");
  expect(four.outcome).toBe("open");
  for (const { socket } of [two, other, four]) socket.destroy();
  server.close();
  await once(server, "close");
});
