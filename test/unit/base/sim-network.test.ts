import { describe, expect, test } from "vitest";
import {
  type ByteConnection,
  type ConnectionHandlers,
  SeededRandom,
  SimClock,
  SimNetwork,
} from "../../../src/base/index.ts";
import { networkContract } from "../../support/network-contract.ts";

for (const seed of [1, 2, 3]) {
  networkContract(`simulated network, seed ${seed}`, async () => {
    const { clock, network } = machine(seed);
    return {
      network: network.host(),
      address: { host: "127.0.0.1", port: 0 },
      run: (promise) => clock.complete(promise),
      close: async () => {
        expect(network.connectionCount).toBe(0);
      },
    };
  });
}

describe("links", () => {
  test("a silenced direction holds bytes back and lets them through afterwards", async () => {
    const { clock, network } = machine(1);
    const { client, server } = await connected(clock, network);
    const release = network.silence("a", "b");
    client.connection.write(Buffer.from("hello"));
    server.connection.write(Buffer.from("back"));
    await clock.advance(10_000);
    expect(server.text).toBe("");
    expect(client.text).toBe("back");
    release();
    release();
    await clock.advance(100);
    expect(server.text).toBe("hello");
  });

  test("connecting through silence times out, or succeeds when it ends in time", async () => {
    const { clock, network } = machine(2);
    await clock.complete(network.host("b").listen({ host: "b", port: 7 }, () => new Heard()));
    const release = network.silence("b", "a");
    const connect = () => network.host("a").connect({ host: "b", port: 7 }, () => new Heard());
    await expect(clock.complete(connect(), 200_000)).rejects.toMatchObject({
      details: { errno: "ETIMEDOUT" },
    });
    const late = connect();
    await clock.advance(1000);
    release();
    await clock.complete(late);
  });

  test("reset tells both ends once", async () => {
    const { clock, network } = machine(3);
    const { client, server } = await connected(clock, network);
    expect(network.reset((link) => link.from === "x")).toBe(0);
    expect(network.reset((link) => link.from === "a" && link.to === "b")).toBe(1);
    await clock.advance(100);
    expect(client.closes).toEqual(["ECONNRESET"]);
    expect(server.closes).toEqual(["ECONNRESET"]);
    expect(network.connectionCount).toBe(0);
  });

  test("a killed host hears nothing more, its peers hear of it, its address is free", async () => {
    const { clock, network } = machine(4);
    const { client, server } = await connected(clock, network);
    client.connection.write(Buffer.from("lost"));
    network.kill("b");
    await clock.advance(100);
    expect([server.text, server.closes]).toEqual(["", []]);
    expect(client.closes).toEqual(["ECONNRESET"]);
    await expect(
      clock.complete(network.host("a").connect({ host: "b", port: 7 }, () => new Heard())),
    ).rejects.toMatchObject({ code: "NETWORK_REFUSED" });
    await clock.complete(network.host("b").listen({ host: "b", port: 7 }, () => new Heard()));
  });

  test("a host without power tells nobody", async () => {
    const { clock, network } = machine(5);
    const { client } = await connected(clock, network);
    network.powerOff("b");
    client.connection.write(Buffer.from("x"));
    await clock.advance(60_000);
    expect(client.closes).toEqual([]);
  });

  test("a foreign address cannot be listened on", async () => {
    const { clock, network } = machine(6);
    await expect(
      clock.complete(network.host("a").listen({ host: "b", port: 1 }, () => new Heard())),
    ).rejects.toMatchObject({ code: "NETWORK_ADDRESS_INVALID" });
  });
});

test("memory given to onData is overwritten after the call", async () => {
  const { clock, network } = machine(7);
  const { client, server } = await connected(clock, network);
  client.connection.write(Buffer.from("abc"));
  await clock.advance(100);
  expect(server.text).toBe("abc");
  expect(server.views.every((view) => view.every((byte) => byte === 0xdb))).toBe(true);
});

test("bytes beyond the window stay the writer's, changes to them show", async () => {
  const { clock, network } = machine(8, 16);
  const { client, server } = await connected(clock, network);
  const bytes = Buffer.alloc(40, "a");
  client.connection.write(bytes);
  expect(client.connection.unsentBytes).toBe(24);
  bytes.fill("b");
  await clock.advance(100);
  expect(server.text).toBe("a".repeat(16) + "b".repeat(24));
});

test("the same seed cuts the same chunks, another seed others", async () => {
  const chunks = async (seed: number): Promise<string> => {
    const { clock, network } = machine(seed);
    const { client, server } = await connected(clock, network);
    client.connection.write(Buffer.alloc(10_000));
    await clock.advance(1000);
    return server.views.map((view) => view.length).join();
  };
  expect(await chunks(9)).toBe(await chunks(9));
  expect(await chunks(9)).not.toBe(await chunks(10));
});

test("deliveries are whole where cuts are made rare", async () => {
  const random = new SeededRandom(4);
  const clock = new SimClock({ random: random.split("clock") });
  const network = new SimNetwork({ clock, random, cutEvery: 1_000_000 });
  const { client, server } = await connected(clock, network);
  for (let n = 1; n <= 10; n++) {
    client.connection.write(Buffer.alloc(n));
    await clock.advance(10);
  }
  expect(server.views.map((view) => view.length)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

class Heard implements ConnectionHandlers {
  text = "";
  readonly views: Buffer[] = [];
  readonly closes: unknown[] = [];

  onData(bytes: Buffer): void {
    this.text += bytes.toString("latin1");
    this.views.push(bytes);
  }

  onDrain(): void {
    this.text += "";
  }

  onClose(error: Error | undefined): void {
    const details = error !== undefined && "details" in error ? error.details : undefined;
    this.closes.push((details as { errno?: string } | undefined)?.errno);
  }
}

type End = Heard & { connection: ByteConnection };

function machine(seed: number, windowBytes = 65_536) {
  const random = new SeededRandom(seed);
  const clock = new SimClock({ random: random.split("clock") });
  return { clock, network: new SimNetwork({ clock, random, windowBytes }) };
}

/** Host a connected to host b. */
async function connected(clock: SimClock, network: SimNetwork) {
  const ends: End[] = [];
  const open = (connection: ByteConnection): Heard => {
    const end = Object.assign(new Heard(), { connection });
    ends.push(end);
    return end;
  };
  await clock.complete(network.host("b").listen({ host: "b", port: 7 }, open));
  await clock.complete(network.host("a").connect({ host: "b", port: 7 }, open));
  const [server, client] = ends as [End, End];
  return { client, server };
}
