import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, type Readable } from "node:stream";
import { expect, test } from "vitest";
import { createPub } from "../../../src/cli/commands/pub.ts";
import { cliErrors } from "../../../src/cli/errors.ts";
import { createFakeIo } from "../../support/fake-io.ts";
import { FakeBroker } from "../../support/fake-mqtt-client.ts";
import { run } from "../../support/run-command.ts";

async function pub(
  line: readonly string[],
  broker = new FakeBroker(),
  stdin: string | Buffer | Readable = "",
) {
  const { io, exit } = run(createPub(broker.connect), line, createFakeIo({ stdin }));
  return { broker, io, exit: await exit };
}

test("a message goes out with Mosquitto's flags", async () => {
  const { broker, exit } = await pub(
    "-h ::1 -p 2883 -t a/b -m hi -q 1 -r -i me -u user -P pw -V 311 -k 5".split(" "),
  );
  expect(exit).toBe(0);
  expect(broker.connects).toEqual([
    {
      host: "::1",
      port: 2883,
      version: 4,
      clientId: "me",
      isClean: true,
      sessionExpiryS: undefined,
      keepAliveS: 5,
      user: "user",
      password: "pw",
    },
  ]);
  expect(broker.published).toMatchObject([{ topic: "a/b", text: "hi", qos: 1, isRetained: true }]);
  expect(broker.endCount).toBe(1);
});

test("without flags: MQTT 5 on 127.0.0.1:1883, QoS 0, a random id", async () => {
  const { broker } = await pub(["-t", "a", "-m", "x"]);
  expect(broker.connects[0]).toMatchObject({ host: "127.0.0.1", port: 1883, version: 5 });
  expect(broker.connects[0]?.clientId).toMatch(/^flagstone-[0-9a-f]{12}$/);
  expect(broker.published[0]).toMatchObject({ qos: 0, isRetained: false });
});

test("-n sends nothing, -s all of standard input, -f a file, bytes as they are", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "flagstone-")), "message");
  writeFileSync(file, Buffer.from([0, 255, 10]));
  expect((await pub(["-t", "a", "-n"])).broker.published[0]?.payload.length).toBe(0);
  expect((await pub(["-t", "a", "-s"], undefined, "x\ny\n")).broker.published[0]?.text).toBe(
    "x\ny\n",
  );
  const fromFile = await pub(["-t", "a", "-f", file]);
  expect([...(fromFile.broker.published[0]?.payload ?? [])]).toEqual([0, 255, 10]);
});

test("-l sends a message for each line, in order, with a bounded number on their way", async () => {
  const lines = Array.from({ length: 500 }, (_, index) => `line ${index}`);
  const { broker } = await pub(["-t", "a", "-l", "-q", "1"], undefined, `${lines.join("\n")}\n`);
  expect(broker.published.map(({ text }) => text)).toEqual(lines);
  expect(broker.underWayMax).toBeLessThanOrEqual(64);
});

test("-l takes the bytes of a line as they are; only LF and CRLF end one", async () => {
  const lines = [
    Buffer.from("lat\xe9in", "latin1"),
    Buffer.from("a\rb"),
    Buffer.from("one\u2028two\u0085three"),
    Buffer.from([0, 255, 254]),
    Buffer.alloc(0),
    Buffer.from("no end"),
  ];
  const ends = ["\n", "\n", "\r\n", "\n", "\r\n", ""].map((end) => Buffer.from(end));
  const stdin = Buffer.concat(lines.flatMap((line, at) => [line, ends[at] as Buffer]));
  const { broker, exit } = await pub(["-t", "a", "-l"], undefined, stdin);
  expect(exit).toBe(0);
  expect(broker.published.map(({ payload }) => Buffer.from(payload))).toEqual(lines);
});

test("a refused publish ends with 1 and its reason", async () => {
  const broker = new FakeBroker();
  broker.publishFailure = cliErrors.publishRefused({ topic: "a", reason: "quota exceeded (0x97)" });
  const { exit, io } = await pub(["-t", "a", "-m", "x", "-q", "1"], broker);
  expect(exit).toBe(1);
  expect(io.stderr()).toBe("publish to a refused: quota exceeded (0x97)\n");
});

test("a refused line ends the run instead of being passed over", async () => {
  const broker = new FakeBroker();
  broker.publishFailure = cliErrors.publishRefused({ topic: "a", reason: "no" });
  expect((await pub(["-t", "a", "-l", "-q", "1"], broker, "1\n2\n")).exit).toBe(1);
});

test("a line that is refused while no other comes ends the run with its reason", async () => {
  const broker = new FakeBroker();
  broker.publishFailure = cliErrors.publishRefused({ topic: "a", reason: "no" });
  const stdin = new PassThrough();
  stdin.write("1\n");
  const { exit, io } = await pub(["-t", "a", "-l", "-q", "1"], broker, stdin);
  expect(exit).toBe(1);
  expect(io.stderr()).toBe("publish to a refused: no\n");
});

test("a broker that cannot be reached ends with 4", async () => {
  const broker = new FakeBroker();
  broker.connectFailure = cliErrors.connectFailed({ address: "h:1", reason: "refused" });
  const { exit, io } = await pub(["-t", "a", "-m", "x"], broker);
  expect(exit).toBe(4);
  expect(io.stderr()).toBe("cannot reach h:1: refused\n");
});

test.each([
  [["-m", "x"], "give a topic with -t"],
  [["-t", "a"], "exactly one of -m, -f, -s, -l, -n"],
  [["-t", "a", "-m", "x", "-n"], "exactly one of -m, -f, -s, -l, -n"],
  [["-t", "a/+", "-m", "x"], "no wildcards"],
  [["-t", "a", "-m", "x", "-q", "3"], '-q expects 0 to 2, got "3"'],
  [["-t", "a", "-m", "x", "-p", "0"], '-p expects 1 to 65535, got "0"'],
  [["-t", "a", "-m", "x", "-V", "7"], "-V expects 5, 311 or 31"],
  [["-t", "a", "-m", "x", "-V", "311", "-x", "5"], "-x needs MQTT 5"],
  [["-t", "a", "-m", "x", "--bogus"], "unknown option '--bogus'"],
  [["-t", "a", "-f", "/nowhere/at/all"], 'cannot read "/nowhere/at/all"'],
])("%j is a usage error and connects to nobody", async (line, reason) => {
  const { broker, io, exit } = await pub(line);
  expect(exit).toBe(2);
  expect(io.stderr()).toContain(reason);
  expect(broker.connects).toEqual([]);
});

test("-W bounds the wait", async () => {
  const broker = new FakeBroker();
  const { io, exit } = run(
    createPub(() => new Promise(() => undefined)),
    ["-t", "a", "-m", "x", "-W", "3"],
  );
  expect(await io.clock.complete(exit)).toBe(1);
  expect(io.stderr()).toBe("timed out after 3 s\n");
  expect(broker.endCount).toBe(0);
});
