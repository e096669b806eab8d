import fs from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodeNetwork } from "../../../src/base/index.ts";
import { networkContract } from "../../support/network-contract.ts";

const idle = { onData: ignore, onDrain: ignore, onClose: ignore };

networkContract("TCP", async () => ({
  network: nodeNetwork,
  address: { host: "127.0.0.1", port: 0 },
  run: (promise) => promise,
  close: () => Promise.resolve(),
}));

networkContract("Unix socket", async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-net-"));
  return {
    network: nodeNetwork,
    address: { path: join(dir, "socket") },
    run: (promise) => promise,
    close: async () => fs.rmSync(dir, { recursive: true }),
  };
});

describe("TCP", () => {
  test("a port of 0 is replaced by the one that was given, and peers see the address", async () => {
    let seen = "";
    const accepted = deferred<void>();
    const listener = await nodeNetwork.listen({ host: "127.0.0.1", port: 0 }, (connection) => {
      seen = connection.remote;
      accepted.resolve();
      return idle;
    });
    expect(listener.address).toMatchObject({ host: "127.0.0.1" });
    expect("port" in listener.address && listener.address.port).toBeGreaterThan(0);
    const connection = await nodeNetwork.connect(listener.address, () => idle);
    await accepted.promise;
    expect(seen).toMatch(/^127\.0\.0\.1:\d+$/);
    connection.destroy();
    await listener.close();
  });

  test("an address of another machine and an unknown name are refused as invalid", async () => {
    for (const host of ["192.0.2.1", "no-such-host.invalid"]) {
      await expect(nodeNetwork.listen({ host, port: 0 }, () => idle)).rejects.toMatchObject({
        code: "NETWORK_ADDRESS_INVALID",
        details: { address: `${host}:0` },
      });
    }
  });

  test("a reset by the peer is an error with its errno", async () => {
    const closed = deferred<Error | undefined>();
    const listener = await nodeNetwork.listen({ host: "127.0.0.1", port: 0 }, (connection) => {
      connection.write(Buffer.from("x"));
      return { ...idle, onClose: closed.resolve };
    });
    const { port } = listener.address as { port: number };
    const socket = net.connect(port, "127.0.0.1", () => socket.resetAndDestroy());
    expect(await closed.promise).toMatchObject({
      code: "NETWORK_FAILED",
      details: { errno: "ECONNRESET" },
    });
    await listener.close();
  });
});

describe("Unix socket", () => {
  test("a socket file left over by a killed process is replaced, a file is not", async () => {
    const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-net-"));
    const path = join(dir, "socket");
    leaveSocketFile(path);
    const listener = await nodeNetwork.listen({ path }, () => idle);
    await listener.close();
    fs.writeFileSync(join(dir, "file"), "precious");
    await expect(nodeNetwork.listen({ path: join(dir, "file") }, () => idle)).rejects.toMatchObject(
      { code: "NETWORK_ADDRESS_IN_USE" },
    );
    expect(fs.readFileSync(join(dir, "file"), "utf8")).toBe("precious");
    await expect(
      nodeNetwork.listen({ path: join(dir, "missing/socket") }, () => idle),
    ).rejects.toMatchObject({ code: "NETWORK_ADDRESS_INVALID" });
    fs.rmSync(dir, { recursive: true });
  });
});

/** A bound socket whose name outlives it: the listener closes after its name was moved away. */
function leaveSocketFile(path: string): void {
  const server = net.createServer().listen(`${path}.bound`);
  fs.renameSync(`${path}.bound`, path);
  server.close();
}

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = ignore;
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

function ignore(): undefined {
  return undefined;
}
