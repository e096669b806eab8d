import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { watchSignals } from "../../../src/node/signals.ts";

function watched() {
  const source = new EventEmitter();
  const calls: string[] = [];
  const remove = watchSignals(
    {
      stop: (signal) => calls.push(`stop ${signal}`),
      endNow: (signal) => calls.push(`end ${signal}`),
      reload: () => calls.push("reload"),
    },
    source,
  );
  return { source, calls, remove };
}

test("the first SIGTERM or SIGINT stops, a second of either ends at once", () => {
  const { source, calls } = watched();
  source.emit("SIGTERM");
  source.emit("SIGINT");
  expect(calls).toEqual(["stop SIGTERM", "end SIGINT"]);
});

test("SIGHUP reloads as often as it comes and does not count as a stop", () => {
  const { source, calls } = watched();
  source.emit("SIGHUP");
  source.emit("SIGHUP");
  source.emit("SIGINT");
  expect(calls).toEqual(["reload", "reload", "stop SIGINT"]);
});

test("removal leaves no handler behind", () => {
  const { source, remove } = watched();
  remove();
  expect(source.eventNames()).toEqual([]);
});
