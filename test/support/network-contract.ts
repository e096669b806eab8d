// What every Network must do, whoever implements it. Each rule runs as one program.

import { describe, expect, test } from "vitest";
import {
  type ByteConnection,
  type ConnectionHandlers,
  isCodedError,
  type ListenAddress,
  type Network,
} from "../../src/base/index.ts";

export type NetworkRig = {
  readonly network: Network;
  /** Where to listen; a port of 0 lets the network choose. */
  readonly address: ListenAddress;
  /** Runs whatever drives the network until the promise settles. */
  run<T>(promise: Promise<T>): Promise<T>;
  close(): Promise<void>;
};

/** One end that keeps what it heard. */
class Peer implements ConnectionHandlers {
  readonly connection: ByteConnection;
  readonly closed: Promise<Error | undefined>;
  received = Buffer.alloc(0);
  closeCount = 0;
  drainCount = 0;
  lateEvents = 0;
  #resolveClosed: (error: Error | undefined) => void = () => undefined;
  #waiting: Array<() => void> = [];

  constructor(connection: ByteConnection) {
    this.connection = connection;
    this.closed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
  }

  onData(bytes: Buffer): void {
    if (this.closeCount > 0) this.lateEvents++;
    this.received = Buffer.concat([this.received, bytes]);
    this.#wake();
  }

  onDrain(): void {
    if (this.closeCount > 0) this.lateEvents++;
    this.drainCount++;
    this.#wake();
  }

  onClose(error: Error | undefined): void {
    this.closeCount++;
    this.#resolveClosed(error);
    this.#wake();
  }

  /** Resolves after the first event that makes it true. */
  async until(done: () => boolean): Promise<void> {
    while (!done()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

type Pair = { readonly client: Peer; readonly server: Peer };

export function networkContract(name: string, openRig: () => Promise<NetworkRig>): void {
  const raw = (title: string, program: (rig: NetworkRig) => Promise<void>): void => {
    test(title, async () => {
      const rig = await openRig();
      try {
        await rig.run(program(rig));
      } finally {
        await rig.close();
      }
    });
  };
  const rule = (title: string, program: (pair: Pair) => Promise<void>): void => {
    raw(title, async ({ network, address }) => {
      const { listener, accepted } = await serve(network, address);
      const pair = await join(network, listener.address, accepted);
      await program(pair);
      pair.client.connection.destroy();
      pair.server.connection.destroy();
      await Promise.all([pair.client.closed, pair.server.closed]);
      expect([pair.client.closeCount, pair.server.closeCount]).toEqual([1, 1]);
      expect(pair.client.lateEvents + pair.server.lateEvents).toBe(0);
      await listener.close();
    });
  };

  describe(`${name}: bytes`, () => {
    rule("bytes arrive both ways, whole and in order", async ({ client, server }) => {
      const [there, back] = [pattern(300_000, 1), pattern(200_000, 2)];
      for (let at = 0; at < there.length; at += 7001) {
        client.connection.write(there.subarray(at, at + 7001));
      }
      server.connection.write(back);
      await server.until(() => server.received.length >= there.length);
      await client.until(() => client.received.length >= back.length);
      expect(server.received.equals(there)).toBe(true);
      expect(client.received.equals(back)).toBe(true);
    });

    rule("a paused reader gets nothing and slows the writer down", async ({ client, server }) => {
      server.connection.pause();
      const block = pattern(1_000_000, 3);
      const blocks = 48;
      for (let at = 0; at < blocks; at++) client.connection.write(block);
      expect(client.connection.unsentBytes).toBeGreaterThan(0);
      client.connection.write(Buffer.alloc(0));
      server.connection.write(Buffer.from("go"));
      await client.until(() => client.received.length === 2);
      expect(server.received.length).toBe(0);
      expect(client.drainCount).toBe(0);
      let count = 0;
      server.onData = (bytes) => {
        count += bytes.length;
        if (count === blocks * block.length) server.connection.write(Buffer.from("all"));
      };
      server.connection.resume();
      await client.until(() => client.received.length === 5);
      await client.until(() => client.drainCount > 0);
      expect(client.connection.unsentBytes).toBe(0);
      expect(client.drainCount).toBe(1);
    });
  });

  describe(`${name}: closing`, () => {
    rule("end sends what is queued and closes both ends without an error", async (pair) => {
      const { client, server } = pair;
      const bytes = pattern(500_000, 4);
      client.connection.write(bytes);
      client.connection.end();
      client.connection.end();
      client.connection.write(Buffer.from("after the end"));
      expect(await server.closed).toBeUndefined();
      expect(await client.closed).toBeUndefined();
      expect(server.received.equals(bytes)).toBe(true);
    });

    rule("both ends may end at once", async ({ client, server }) => {
      client.connection.write(Buffer.from("one"));
      server.connection.write(Buffer.from("other"));
      client.connection.end();
      server.connection.end();
      expect(await server.closed).toBeUndefined();
      expect(await client.closed).toBeUndefined();
      expect([`${server.received}`, `${client.received}`]).toEqual(["one", "other"]);
    });

    rule("destroy closes at once, here without an error", async ({ client, server }) => {
      server.connection.write(Buffer.from("x"));
      await client.until(() => client.received.length === 1);
      client.connection.destroy();
      client.connection.destroy();
      client.connection.write(Buffer.from("late"));
      expect(client.closeCount).toBe(0);
      expect(await client.closed).toBeUndefined();
      await server.closed;
      expect(server.received.length).toBe(0);
    });

    rule("no data comes after destroy, even within the call that brought some", async (pair) => {
      const { client, server } = pair;
      server.onData = (bytes) => {
        server.received = Buffer.concat([server.received, bytes]);
        server.connection.destroy();
      };
      client.connection.write(pattern(1000, 5));
      await server.closed;
      const { length } = server.received;
      client.connection.write(pattern(1000, 5));
      await client.closed;
      expect(server.received.length).toBe(length);
    });

    rule("calls on a closed connection do nothing", async ({ client, server }) => {
      server.connection.destroy();
      await client.closed;
      await server.closed;
      for (const { connection } of [client, server]) {
        connection.write(Buffer.from("x"));
        connection.pause();
        connection.resume();
        connection.end();
        connection.destroy();
        expect(connection.unsentBytes).toBe(0);
        expect(connection.remote).not.toBe("");
      }
    });
  });

  describe(`${name}: listening`, () => {
    raw("an address in use is refused, and free after close", async ({ network, address }) => {
      const { listener } = await serve(network, address);
      expect(await code(network.listen(listener.address, (c) => new Peer(c)))).toBe(
        "NETWORK_ADDRESS_IN_USE",
      );
      await listener.close();
      await listener.close();
      await (await serve(network, listener.address)).listener.close();
    });

    raw("connecting where nobody listens is refused", async ({ network, address }) => {
      const { listener } = await serve(network, address);
      await listener.close();
      expect(await code(network.connect(listener.address, (c) => new Peer(c)))).toBe(
        "NETWORK_REFUSED",
      );
    });

    raw("connections live on when their listener closes", async ({ network, address }) => {
      const { listener, accepted } = await serve(network, address);
      const { client, server } = await join(network, listener.address, accepted);
      await listener.close();
      client.connection.write(Buffer.from("still"));
      await server.until(() => server.received.length === 5);
      client.connection.destroy();
      await Promise.all([client.closed, server.closed]);
      expect(listener.failedAccepts).toBe(0);
    });

    raw("many connections do not mix", async ({ network, address }) => {
      const { listener, accepted } = await serve(network, address);
      const pairs = [];
      for (let at = 0; at < 10; at++) pairs.push(await join(network, listener.address, accepted));
      for (const [at, { client }] of pairs.entries()) client.connection.write(pattern(5000, at));
      for (const [at, { server }] of pairs.entries()) {
        await server.until(() => server.received.length === 5000);
        expect(server.received.equals(pattern(5000, at))).toBe(true);
      }
      for (const { client } of pairs) client.connection.end();
      await Promise.all(pairs.flatMap(({ client, server }) => [client.closed, server.closed]));
      await listener.close();
    });
  });
}

async function serve(network: Network, address: ListenAddress) {
  const peers: Peer[] = [];
  const waiting: Array<(peer: Peer) => void> = [];
  const listener = await network.listen(address, (connection) => {
    const peer = new Peer(connection);
    const next = waiting.shift();
    if (next === undefined) peers.push(peer);
    else next(peer);
    return handlersOf(peer);
  });
  const accepted = (): Promise<Peer> => {
    const peer = peers.shift();
    if (peer !== undefined) return Promise.resolve(peer);
    return new Promise((resolve) => waiting.push(resolve));
  };
  return { listener, accepted };
}

async function join(
  network: Network,
  address: ListenAddress,
  accepted: () => Promise<Peer>,
): Promise<Pair> {
  let client: Peer | undefined;
  await network.connect(address, (connection) => {
    client = new Peer(connection);
    return handlersOf(client);
  });
  return { client: client as unknown as Peer, server: await accepted() };
}

/** Looks the method up at each call, so that a rule can replace one. */
function handlersOf(peer: Peer): ConnectionHandlers {
  return {
    onData: (bytes) => peer.onData(bytes),
    onDrain: () => peer.onDrain(),
    onClose: (error) => peer.onClose(error),
  };
}

function pattern(size: number, seed: number): Buffer {
  return Buffer.from(Uint8Array.from({ length: size }, (_, at) => (at * 31 + (at >> 8)) ^ seed));
}

async function code(promise: Promise<unknown>): Promise<string | undefined> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return isCodedError(error) ? error.code : undefined;
}
