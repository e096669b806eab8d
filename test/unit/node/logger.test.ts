import { expect, test } from "vitest";
import { diskErrors, SimClock } from "../../../src/base/index.ts";
import { createLogger, type LoggerOptions } from "../../../src/node/logger.ts";
import { controlCharacters, withoutColours } from "../../support/terminal.ts";

function capture(options: Partial<LoggerOptions> = {}) {
  const clock = new SimClock();
  const lines: string[] = [];
  const logger = createLogger({
    level: "info",
    format: "json",
    write: (line) => lines.push(line),
    clock,
    ...options,
  });
  const records = (): Array<Record<string, unknown>> => lines.map((line) => JSON.parse(line));
  return { clock, lines, logger, records };
}

test("a pipe gets one JSON object a line, with time, level, event and fields", () => {
  const { lines, logger } = capture();
  logger.info("node.started", { port: 1883 });
  expect(lines).toEqual([
    '{"level":"info","time":"2026-01-01T00:00:00.000Z","port":1883,"event":"node.started"}\n',
  ]);
});

test("a terminal gets one short line", () => {
  const { lines, logger } = capture({ format: "pretty" });
  logger.warn("broker.connection_closed", { client: "a b", reason: 141 });
  const plain = withoutColours(lines.join(""));
  expect(plain).toBe('00:00:00.000 warn  broker.connection_closed client="a b" reason=141\n');
});

test("events below the level are not written", () => {
  const { lines, logger } = capture({ level: "warn" });
  logger.debug("a.b");
  logger.info("a.b");
  expect(lines).toEqual([]);
});

test("a level that is set holds from the next line on", () => {
  const { logger, records } = capture({ level: "warn" });
  logger.info("a.before");
  logger.setLevel("debug");
  logger.debug("a.after");
  logger.setLevel("error");
  logger.warn("a.late");
  expect(records().map(({ event }) => event)).toEqual(["a.after"]);
});

test("payloads and secrets never reach a line, at any depth", () => {
  const { lines, logger } = capture();
  logger.error("broker.refused", {
    payload: "S1",
    password: "S2",
    connect: { authData: "S3", user: "u", will: { payload: "S4" } },
    bytes: Buffer.from("S5"),
    list: [{ sessionToken: "S6" }, new Uint8Array([83, 55])],
  });
  expect(lines.join("")).not.toMatch(/S\d/);
  expect(lines.join("")).toContain('"bytes":"[2 bytes]"');
  expect(lines.join("")).toContain('"user":"u"');
});

test("text from outside is bounded and cannot steer a terminal or forge a line", () => {
  const { lines, logger } = capture({ format: "pretty" });
  logger.info("session.opened", { client: `\u001b[2J\u009b1m\nforged ${"x".repeat(10_000)}` });
  expect(lines).toHaveLength(1);
  const [line = ""] = lines;
  expect(line.length).toBeLessThan(1000);
  expect(controlCharacters(withoutColours(line).trimEnd())).toEqual([]);
  expect(line.trimEnd()).not.toContain("\n");
});

test("an error prints code, kind, message and cause", () => {
  const { logger, records } = capture();
  const cause = new Error("EIO");
  logger.error("log.failed", {
    error: diskErrors.failed({ operation: "write", path: "x", reason: "EIO" }, cause),
  });
  expect(records()[0]?.error).toMatchObject({
    code: "DISK_IO_FAILED",
    kind: "internal",
    message: "write of x failed: EIO",
    cause: { name: "Error", message: "EIO" },
  });
});

test("values that hold themselves end", () => {
  const { logger, lines } = capture();
  const loop: Record<string, unknown> = {};
  loop.self = loop;
  logger.info("a.b", loop);
  expect(lines).toHaveLength(1);
});

test("repeats of one event are folded into one line with their count", async () => {
  const { clock, logger, records } = capture();
  for (let index = 0; index < 100; index++) logger.warn("broker.refused", { index });
  logger.warn("other.event");
  expect(records().filter(({ event }) => event === "broker.refused")).toHaveLength(5);
  await clock.advance(10_000);
  expect(records().at(-1)).toMatchObject({ event: "broker.refused", repeated: 95, index: 99 });
  logger.warn("broker.refused", { index: 100 });
  expect(records().at(-1)).toMatchObject({ index: 100 });
});

test("a few repeats are not counted again", async () => {
  const { clock, logger, lines } = capture();
  for (let index = 0; index < 5; index++) logger.info("a.b");
  await clock.advance(20_000);
  expect(lines).toHaveLength(5);
});

test("the same event with another error code is folded apart", () => {
  const { logger, lines } = capture();
  for (let index = 0; index < 10; index++) logger.info("a.b", { code: `C${index % 2}` });
  expect(lines).toHaveLength(10);
});

test("flush writes what is folded", () => {
  const { logger, records } = capture();
  for (let index = 0; index < 7; index++) logger.info("a.b");
  logger.flush();
  expect(records().at(-1)).toMatchObject({ repeated: 2 });
});

test("lines of traces and the counts of a drain are not folded; traces pass at any level", () => {
  const { logger, records } = capture({ level: "info" });
  for (let count = 0; count < 20; count++) {
    logger.info("broker.draining", { clients: 20 - count });
    logger.info("trace.publish", { clientId: "a" });
    logger.info("room.other");
  }
  const count = (name: string) => records().filter(({ event }) => event === name).length;
  expect([count("broker.draining"), count("trace.publish"), count("room.other")]).toEqual([
    20, 20, 5,
  ]);
  logger.setLevel("error");
  logger.info("broker.draining", { clients: 0 });
  logger.info("trace.publish", { clientId: "a", payload: "S1" });
  expect([count("broker.draining"), count("trace.publish")]).toEqual([20, 21]);
  expect(records().at(-1)).toMatchObject({ payload: "[hidden]" });
});
