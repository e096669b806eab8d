import { expect, test } from "vitest";
import { NodeMachine } from "../../support/node-machine.ts";

function message(topic: string, text: string, qos: 0 | 1 | 2 = 1) {
  return { topic, payload: Buffer.from(text), qos, isRetained: false };
}

const durable = { clientId: "s", isClean: false, sessionExpiryS: 3600 };

test("a durable subscriber gets after a power cut what was acked while it was away", async () => {
  const machine = new NodeMachine();
  const node = await machine.boot();
  const subscriber = await machine.connect(durable);
  await machine.complete(subscriber.subscribe(["a/#"], 2));
  await machine.complete(subscriber.end());
  // What comes after it is known from the log only: the filters must be there when it is replayed.
  await machine.complete(node.store.checkpoint());
  const publisher = await machine.connect({ clientId: "p" });
  for (const qos of [1, 2] as const) {
    await machine.complete(publisher.publish(message("a/b", `q${qos}`, qos)));
  }
  machine.crash();
  await machine.boot();
  const texts: string[] = [];
  const back = await machine.connect(durable, ({ payload }) => {
    texts.push(Buffer.from(payload).toString());
    return true;
  });
  await machine.clock.advance(1000);
  expect(back.isSessionPresent).toBe(true);
  expect(texts).toEqual(["q1", "q2"]);
});

test("nothing listens before the log is replayed", async () => {
  const machine = new NodeMachine();
  await machine.boot();
  const publisher = await machine.connect({ clientId: "p" });
  const subscriber = await machine.connect(durable);
  await machine.complete(subscriber.subscribe(["a"], 1));
  await machine.complete(publisher.publish(message("a", "1")));
  machine.crash();
  const hangs = { hangs: true, times: Number.POSITIVE_INFINITY };
  machine.kv.inject({ on: "open", path: "db/messages", ...hangs });
  const starting = machine.start();
  await machine.clock.advance(5000);
  await expect(machine.connect()).rejects.toMatchObject({ code: "CLI_CONNECT_FAILED" });
  machine.kv.heal();
  await machine.complete(starting);
  await machine.connect();
});

test("a clean stop does not wait for ever for a checkpoint that the volume does not take", async () => {
  const machine = new NodeMachine();
  const node = await machine.boot();
  const publisher = await machine.connect({ clientId: "p" });
  const subscriber = await machine.connect(durable);
  await machine.complete(subscriber.subscribe(["a"], 1));
  await machine.complete(publisher.publish(message("a", "1")));
  const fails = { fails: "ENOSPC", times: Number.POSITIVE_INFINITY } as const;
  machine.kv.inject({ on: "write", path: "db/messages", ...fails });
  const beforeMs = machine.clock.elapsedMs();
  await machine.complete(node.close());
  expect(machine.clock.elapsedMs() - beforeMs).toBeLessThan(30_000);
  expect(machine.events.map(({ event }) => event)).toContain("node.last_checkpoint_left");
});

test("a clean stop says so to clients, takes a last checkpoint and gives everything back", async () => {
  const machine = new NodeMachine();
  const node = await machine.boot();
  const subscriber = await machine.connect(durable);
  await machine.complete(subscriber.subscribe(["a"], 1));
  machine.phases.length = 0;
  await machine.complete(node.close());
  await expect(subscriber.closed).rejects.toThrow("server_shutting_down");
  expect(machine.phases).toContain("checkpoint.committed");
  await machine.boot();
  const back = await machine.connect(durable);
  expect(back.isSessionPresent).toBe(true);
});

test("a failed sync of the log fails the node and acknowledges nothing more", async () => {
  const machine = new NodeMachine();
  const node = await machine.boot();
  const subscriber = await machine.connect(durable);
  await machine.complete(subscriber.subscribe(["a"], 1));
  const publisher = await machine.connect({ clientId: "p" });
  machine.disk.inject({ on: "fdatasync", path: "data/log/", fails: "EIO" });
  let isAcked = false;
  const publishing = publisher.publish(message("a", "1")).then(
    () => {
      isAcked = true;
    },
    () => undefined,
  );
  await expect(machine.complete(node.failed)).rejects.toMatchObject({ code: "NODE_FAILED" });
  await machine.complete(node.close());
  await machine.complete(publishing);
  expect(isAcked).toBe(false);
});

test("a start that fails at its listeners gives log, store and directory back", async () => {
  const machine = new NodeMachine();
  const taken = await machine.complete(
    machine.network.host().listen({ host: "127.0.0.1", port: 1883 }, () => {
      throw new Error("nobody connects");
    }),
  );
  await expect(machine.boot()).rejects.toMatchObject({ code: "NODE_LISTEN_FAILED" });
  await taken.close();
  await machine.boot();
});

test("sessions and takeovers name their phases", async () => {
  const machine = new NodeMachine();
  await machine.boot();
  const first = await machine.connect(durable);
  await machine.complete(first.subscribe(["a"], 1));
  await machine.connect(durable);
  const publisher = await machine.connect({ clientId: "p" });
  await machine.complete(publisher.publish(message("a", "1")));
  await machine.clock.advance(1000);
  for (const phase of ["takeover.stopped", "takeover.claimed", "session.checkpointed"]) {
    expect(machine.phases).toContain(phase);
  }
});
