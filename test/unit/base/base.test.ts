import { describe, expect, expectTypeOf, test } from "vitest";
import {
  assert,
  assertPresent,
  Closer,
  CodedError,
  createCounters,
  defineErrors,
  type ErrorCodes,
  errorRows,
  formatAddress,
  isCodedError,
  joinPath,
  parentDir,
  silentLogger,
  toError,
  unreachable,
} from "../../../src/base/index.ts";

const roomErrors = defineErrors({
  lost: {
    code: "ROOM_THING_LOST",
    kind: "retry",
    message: "{thing} was lost at {place}, {thing} indeed",
    help: "Look for it.",
  },
  closed: { code: "ROOM_CLOSED", kind: "closed", message: "closed", help: "Open it." },
});

describe("errors", () => {
  test("a factory fills the message from the details and keeps code, kind and cause", () => {
    const cause = new Error("why");
    const error = roomErrors.lost({ thing: "key", place: 3 }, cause);
    expect(error).toBeInstanceOf(Error);
    expect(error.message).toBe("key was lost at 3, key indeed");
    expect([error.name, error.code, error.kind]).toEqual([
      "CodedError",
      "ROOM_THING_LOST",
      "retry",
    ]);
    expect(error.details).toEqual({ thing: "key", place: 3 });
    expect(error.cause).toBe(cause);
  });

  test("a detail that is missing leaves its name to be seen", () => {
    expect(roomErrors.lost({ thing: "key" }).message).toContain("at {place},");
    expect("cause" in roomErrors.lost()).toBe(false);
  });

  test("isCodedError tells our errors from others, and codes apart", () => {
    expect(isCodedError(roomErrors.closed())).toBe(true);
    expect(isCodedError(roomErrors.closed(), "ROOM_CLOSED")).toBe(true);
    expect(isCodedError(roomErrors.closed(), "ROOM_THING_LOST")).toBe(false);
    expect(isCodedError(new Error("x"))).toBe(false);
    expect(isCodedError(undefined)).toBe(false);
  });

  test("rows and the union of codes come from the table", () => {
    expect(errorRows(roomErrors).map((row) => row.code)).toEqual([
      "ROOM_THING_LOST",
      "ROOM_CLOSED",
    ]);
    expectTypeOf<ErrorCodes<typeof roomErrors>>().toEqualTypeOf<
      "ROOM_THING_LOST" | "ROOM_CLOSED"
    >();
  });

  test("toError keeps errors and wraps the rest", () => {
    const error = new Error("x");
    expect(toError(error)).toBe(error);
    expect(toError("text").message).toBe("text");
    expect(toError(undefined)).toBeInstanceOf(Error);
  });
});

describe("assertions", () => {
  test("a broken invariant throws an internal error that names it", () => {
    assert(true, "holds");
    expect(assertPresent(0, "zero is present")).toBe(0);
    for (const broken of [
      () => assert(false, "the sky is up"),
      () => assertPresent(undefined, "the sky is up"),
      () => assertPresent(null, "the sky is up"),
      () => unreachable("x" as never, "the sky is up"),
    ]) {
      const error = thrown(broken);
      expect(error).toBeInstanceOf(CodedError);
      expect(error).toMatchObject({ code: "BASE_ASSERTION_FAILED", kind: "internal" });
      expect((error as Error).message).toContain("the sky is up");
    }
  });
});

describe("closer", () => {
  test("things are closed in reverse order, one after the other, once", async () => {
    const events: string[] = [];
    const closer = new Closer();
    const thing = (name: string) => ({
      close: async () => {
        events.push(`${name} begins`);
        await Promise.resolve();
        events.push(`${name} closed`);
      },
    });
    const first = thing("first");
    expect(closer.own(first)).toBe(first);
    closer.defer(() => {
      events.push("deferred");
    });
    closer.own(thing("last"));
    const closing = closer.close();
    expect(closer.close()).toBe(closing);
    await closing;
    await closer[Symbol.asyncDispose]();
    expect(events).toEqual([
      "last begins",
      "last closed",
      "deferred",
      "first begins",
      "first closed",
    ]);
  });

  test("one failure is thrown as it is, several together, and all others are closed", async () => {
    const closed: string[] = [];
    const closer = (failing: string[]): Closer => {
      const all = new Closer();
      for (const name of ["a", "b", "c"]) {
        all.defer(() => {
          if (failing.includes(name)) throw new Error(name);
          closed.push(name);
        });
      }
      return all;
    };
    await expect(closer(["b"]).close()).rejects.toThrow(/^b$/);
    expect(closed).toEqual(["c", "a"]);
    const error = await closer(["a", "c"])
      .close()
      .catch((failure: unknown) => failure);
    expect((error as AggregateError).errors.map((each) => each.message)).toEqual(["c", "a"]);
  });

  test("taking something over after the close began is refused", async () => {
    const closer = new Closer();
    await closer.close();
    expect(() => closer.own({ close: () => Promise.resolve() })).toThrow(/after the close/);
  });
});

test("counters start at zero, one for each help text", () => {
  const counters = createCounters({ hits: "Hits", misses: "Misses" });
  counters.hits++;
  counters.misses += 2;
  expect(counters).toEqual({ hits: 1, misses: 2 });
  expectTypeOf(counters).toEqualTypeOf<{ hits: number; misses: number }>();
});

test("the silent logger takes everything", () => {
  for (const level of ["debug", "info", "warn", "error"] as const) {
    expect(silentLogger[level]("room.thing_happened", { a: 1 })).toBeUndefined();
  }
});

test("paths are joined and taken apart by slashes alone", () => {
  expect(joinPath("data", "log", "a")).toBe("data/log/a");
  expect(joinPath("/data/", "/log")).toBe("/data/log");
  expect(["data/log", "/data", "data", "/a/b/c"].map(parentDir)).toEqual([
    "data",
    "/",
    ".",
    "/a/b",
  ]);
});

test("addresses are written as people write them", () => {
  expect(formatAddress({ host: "127.0.0.1", port: 1 })).toBe("127.0.0.1:1");
  expect(formatAddress({ host: "::1", port: 1 })).toBe("[::1]:1");
  expect(formatAddress({ path: "/run/x.sock" })).toBe("/run/x.sock");
});

function thrown(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return undefined;
}
