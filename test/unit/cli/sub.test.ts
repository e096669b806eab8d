import { expect, test } from "vitest";
import { settle } from "../../../src/base/index.ts";
import { createSub } from "../../../src/cli/commands/sub.ts";
import { cliErrors } from "../../../src/cli/errors.ts";
import { FakeBroker } from "../../support/fake-mqtt-client.ts";
import { run } from "../../support/run-command.ts";

async function sub(line: readonly string[], broker = new FakeBroker()) {
  const { io, exit } = run(createSub(broker.connect), line);
  await settle();
  return { broker, io, exit };
}

test("messages print as they come, with their topic when asked", async () => {
  const { broker, io, exit } = await sub(["-t", "a/#", "-t", "b", "-q", "2", "-v", "-C", "2"]);
  expect(broker.subscriptions).toEqual([{ filters: ["a/#", "b"], qos: 2 }]);
  broker.deliver("a/1", "one");
  broker.deliver("b", Buffer.from([0, 255]));
  expect(await exit).toBe(0);
  expect(io.stdoutBytes()).toEqual(
    Buffer.concat([Buffer.from("a/1 one\nb "), Buffer.from([0, 255, 10])]),
  );
  expect(broker.endCount).toBe(1);
});

test("what was not printed is not acknowledged, so that a durable session gets it again", async () => {
  const { broker, exit } = await sub(["-t", "a", "-C", "1", "-i", "me", "-c"]);
  expect(broker.deliver("a", "1")).toBe(true);
  expect(broker.deliver("a", "2")).toBe(false);
  expect(await exit).toBe(0);
});

test("JSON has one object a line; what is no text comes as base64", async () => {
  const { broker, io, exit } = await sub(["-t", "#", "-o", "json", "-C", "2"]);
  broker.deliver("a", "h\u00e9", {
    qos: 2,
    isRetained: true,
    isDuplicate: true,
    userProperties: [
      ["k", "1"],
      ["k", "2"],
    ],
  });
  broker.deliver("a", Buffer.from([0xff]));
  await exit;
  expect(
    io
      .stdout()
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual([
    {
      topic: "a",
      payload: "h\u00e9",
      qos: 2,
      retain: true,
      dup: true,
      userProperties: [
        ["k", "1"],
        ["k", "2"],
      ],
    },
    { topic: "a", payloadBase64: "/w==", qos: 1, retain: false },
  ]);
});

test("-c keeps the session: not clean, and in MQTT 5 without an end of its life", async () => {
  const { broker } = await sub(["-t", "a", "-i", "me", "-c"]);
  expect(broker.connects[0]).toMatchObject({
    clientId: "me",
    isClean: false,
    sessionExpiryS: 0xffff_ffff,
  });
  const limited = await sub(["-t", "a", "-i", "me", "-c", "-x", "60"]);
  expect(limited.broker.connects[0]).toMatchObject({ sessionExpiryS: 60 });
  const old = await sub(["-t", "a", "-i", "me", "-c", "-V", "311"]);
  expect(old.broker.connects[0]).toMatchObject({ isClean: false, sessionExpiryS: undefined });
});

test("a durable subscriber that loses its connection comes back by itself, ever more slowly", async () => {
  const { broker, io, exit } = await sub(["-t", "a", "-i", "me", "-c", "-C", "1"]);
  broker.connectFailure = cliErrors.connectFailed({ address: "127.0.0.1:1883", reason: "refused" });
  broker.lose();
  await io.clock.advance(1600);
  expect(broker.connects).toHaveLength(3);
  expect(io.stderr()).toContain("lost: reset; trying again in 0.5 s\n");
  expect(io.stderr()).toContain("refused; trying again in 1 s\n");
  broker.connectFailure = undefined;
  await io.clock.advance(2000);
  expect(broker.subscriptions).toHaveLength(2);
  broker.deliver("a", "after");
  expect(await exit).toBe(0);
  expect(io.stdout()).toBe("after\n");
});

test("a subscriber that keeps no session ends when its connection is lost", async () => {
  const { broker, io, exit } = await sub(["-t", "a"]);
  broker.lose();
  expect(await exit).toBe(4);
  expect(io.stderr()).toBe("connection to 127.0.0.1:1883 lost: reset\n");
});

test("a broker that is not there at the first try ends with 4, even for a durable subscriber", async () => {
  const broker = new FakeBroker();
  broker.connectFailure = cliErrors.connectFailed({ address: "h:1", reason: "refused" });
  const { exit } = await sub(["-t", "a", "-i", "me", "-c"], broker);
  expect(await exit).toBe(4);
});

test("a signal ends it well, with a DISCONNECT", async () => {
  const { broker, io, exit } = await sub(["-t", "a"]);
  io.signals.emit("SIGINT");
  expect(await exit).toBe(0);
  expect(broker.endCount).toBe(1);
  expect(io.signals.eventNames()).toEqual([]);
});

test("-W ends it with 1 when the count was not reached", async () => {
  const { broker, io, exit } = await sub(["-t", "a", "-C", "5", "-W", "2"]);
  broker.deliver("a", "1");
  expect(await io.clock.complete(exit)).toBe(1);
  expect(io.stdout()).toBe("1\n");
  expect(io.stderr()).toBe("timed out after 2 s\n");
  expect(broker.endCount).toBe(1);
});

test.each([
  [[], "give a topic filter with -t"],
  [["-t", "a", "-c"], "-c needs a client id"],
  [["-t", "a", "-C", "0"], "-C expects 1 to"],
  [["-t", "a", "-o", "xml"], "Allowed choices are text, json"],
])("%j is a usage error", async (line, reason) => {
  const { broker, io, exit } = await sub(line);
  expect(await exit).toBe(2);
  expect(io.stderr()).toContain(reason);
  expect(broker.connects).toEqual([]);
});
