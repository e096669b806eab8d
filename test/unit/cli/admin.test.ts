// The commands that ask a node, in one process with a node on paper: what each prints, and what each does
// with wrong, missing and unauthorised input.

import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { sleep, systemClock } from "../../../src/base/index.ts";
import type { Command, CommandFamily } from "../../../src/cli/command.ts";
import { commandRows } from "../../../src/cli/commands/rows.ts";
import { runCli } from "../../../src/cli/program.ts";
import { type AdminWorld, adminWorld } from "../../support/admin-world.ts";
import { createFakeIo } from "../../support/fake-io.ts";

let world: AdminWorld;
let folder: string;
let taskId: string;
let traceId: string;

beforeEach(async () => {
  world = await adminWorld();
  folder = mkdtempSync(join(tmpdir(), "flagstone-cli-"));
  world.tasks.begin({ operator: world.node.parts.operator, messages: world.node.parts.store });
  const { clock, tasks, app, traces } = world;
  traceId = traces.start(world.node.tap, { clientId: "a", minutes: 1440 }).id;
  taskId = (await clock.complete(tasks.start("verify", {}))).id;
  let last: Promise<unknown> = Promise.resolve();
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    if (!url.startsWith("http://127.0.0.1:18083")) {
      return Promise.reject(new TypeError("failed", { cause: { code: "ECONNREFUSED" } }));
    }
    const { signal: _signal, ...rest } = init;
    const headers = new Headers(rest.headers);
    headers.set("host", "127.0.0.1:18083");
    const request = new Request(url, { ...rest, headers });
    // One at a time: they turn the same simulated clock.
    const answer = last.then(async () => {
      const response = await clock.complete(app.fetch(request, { remote: "127.0.0.1" }));
      // Tasks go on between two requests.
      await clock.complete(sleep(clock, 500));
      return response;
    });
    last = answer.catch(() => undefined);
    return answer;
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
  rmSync(folder, { recursive: true });
});

async function run(argv: readonly string[], environment: Record<string, string> = {}) {
  const paper = createFakeIo({
    environment: { FLAGSTONE_KEY: world.adminKey, XDG_CONFIG_HOME: folder, ...environment },
  });
  // Modules are loaded in real time.
  const code = await runCli(argv, { ...paper, clock: systemClock });
  return { code, out: paper.stdout(), error: paper.stderr() };
}

/** Words of a line as a shell cuts them. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

const others = new Set(["start", "pub", "sub", "config", "version", "user", "acl"]);
const leaves: Array<{ name: string; command: Command }> = [];
for (const row of commandRows) {
  if (others.has(row.name)) continue;
  const loaded: Command | CommandFamily = await row.load();
  if (!("commands" in loaded)) leaves.push({ name: row.name, command: loaded });
  else {
    for (const command of loaded.commands) {
      leaves.push({ name: `${row.name} ${command.name}`, command });
    }
  }
}

/** Examples speak of clients, tasks and keys that the node on paper has under other names. */
function onPaper(words: readonly string[]): string[] {
  const names: Record<string, string> = {
    billing: "b",
    "old-device": "b",
    x: "b",
    "orders.ndjson": join(folder, "orders.ndjson"),
    "device-17": "a",
    "site 4/gateway": "a",
    "6": "1",
    "orders/#": words[1] === "unsubscribe" ? "x/+" : "orders/#",
    "$share/g/a/+": "x/+",
    "sensors/7/state": "x/1",
    "1a2b3c4d": words[0] === "trace" ? traceId : "1a2b3c4d",
    "verify-1a2b3c4d": taskId,
    "compact-1a2b3c4d": taskId,
  };
  const isNode = words[0] !== "context";
  const without = words.filter(
    (word, index) => word !== "--watch" && words[index - 1] !== "--watch",
  );
  const kept = without.map((word) => (isNode ? (names[word] ?? word) : word));
  return kept.map((word) => (word === "http://broker:18083" ? "http://127.0.0.1:18083" : word));
}

describe.each(leaves)("$name", ({ name, command }) => {
  test("has two examples in its help, which says what it does", async () => {
    const { code, out } = await run([...name.split(" "), "--help"]);
    expect(code).toBe(0);
    expect(out).toContain(command.summary);
    for (const example of command.examples) expect(out).toContain(`flagstone ${example}`);
  });

  test("its examples work", async () => {
    if (
      /^(keys delete|context use|context remove|doctor|clients show|trace start|cluster init|cluster join|cluster recover)$/.test(
        name,
      )
    )
      return;
    for (const example of command.examples) {
      if (/^tasks (pause|resume|cancel|forget)/.test(example)) continue;
      const words = onPaper(wordsOf(example));
      if (words.includes("--bundle")) continue;
      const { code, error, out } = await run(words);
      expect({ example, code, error }).toEqual({ example, code: 0, error: "" });
      expect(out.length).toBeGreaterThan(0);
      if (words.includes("json")) JSON.parse(out);
    }
  });

  test("an option that it does not have is 2", async () => {
    const { code, error } = await run([...name.split(" "), "--surprise"]);
    expect([code, error]).toEqual([2, expect.stringContaining("unknown option '--surprise'")]);
  });

  const isLocal = /^(context .*|cluster init|cluster join|cluster recover)$/.test(name);

  test("a wrong key is 1, a node that is not there 4, both in a sentence", async () => {
    if (isLocal || /^(explain|health)$/.test(name)) return;
    const words = onPaper(wordsOf(command.examples[0])).filter((word) => word !== "--url");
    const asked = words.filter((word) => !word.startsWith("http://"));
    if (command.examples[0].includes("trim")) asked.push("--before", "1h");
    const wrong = await run(asked, { FLAGSTONE_KEY: "nonsense" });
    expect([wrong.code, wrong.error]).toEqual([
      1,
      "this needs an API key: this one is not known\n",
    ]);
    const away = await run(asked, { FLAGSTONE_URL: "http://10.9.9.9:1" });
    expect([away.code, away.error]).toEqual([4, expect.stringMatching(/^cannot reach http:.*\n$/)]);
    const odd = await run([...asked, "--url", "nonsense"]);
    expect([odd.code, odd.error]).toEqual([2, expect.stringContaining("--url expects an address")]);
  });

  test("an argument that is missing is 2, before the node is asked", async () => {
    const needed = (command.arguments ?? []).filter(
      ({ doc }) => !/ instead of | for all|messages when|such as/.test(doc),
    );
    if (needed.length === 0) return;
    const before = world.node.calls.length;
    const { code, error } = await run(name.split(" "));
    expect([code, error]).toEqual([2, expect.stringContaining("is missing")]);
    expect(world.node.calls.length).toBe(before);
  });
});

describe("sessions", () => {
  test("in trouble are found, and the rest is counted", async () => {
    const { out } = await run(["sessions", "--backlog", ">0"]);
    expect(out.split("\n")[1]).toMatch(/^b +- +offline +yes +7ms +0 +0 +2 +1970/);
    const some = await run(["sessions", "--limit", "2"]);
    expect(some.out).toContain("2 of 3 sessions; the rest with --all\n");
    const all = await run(["sessions", "--all", "-o", "json"]);
    expect(JSON.parse(all.out).items).toHaveLength(3);
  });

  test("are purged only with --yes", async () => {
    const { out } = await run(["sessions", "purge", "b"]);
    expect(out).toBe("  b\n1 session would be purged; do it with --yes\n");
    expect(world.node.calls.at(-1)?.args[1]).toMatchObject({ dryRun: true });
    expect((await run(["sessions", "purge", "b", "--yes"])).out).toBe("  b\n1 session purged\n");
    expect(world.node.calls.at(-1)?.args[1]).toMatchObject({ dryRun: false });
    const none = await run(["sessions", "purge", "--yes"]);
    expect([none.code, none.error]).toEqual([1, expect.stringContaining("say which sessions")]);
  });

  test("filters that make no sense are told", async () => {
    for (const [flag, value] of [
      ["--backlog", "many"],
      ["--dropped", ">5"],
      ["--limit", "0"],
    ]) {
      expect((await run(["sessions", flag as string, value as string])).code, flag).toBe(2);
    }
    expect((await run(["sessions", "--online", "--offline"])).code).toBe(2);
  });
});

describe("contexts", () => {
  test("hold address and key, are the user's alone, and never show the key", async () => {
    const added = await run(["context", "add", "here", "--url", "http://127.0.0.1:18083"]);
    expect(added).toMatchObject({ code: 0, error: "" });
    const path = join(folder, "flagstone/contexts.json");
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readFileSync(path, "utf8")).toContain(world.adminKey);
    const listed = await run(["context", "-o", "json"]);
    expect(JSON.parse(listed.out)).toEqual([
      { name: "here", url: "http://127.0.0.1:18083", hasKey: true, isCurrent: true },
    ]);
    expect(listed.out).not.toContain(world.adminKey);
    expect((await run(["status"], { FLAGSTONE_KEY: "" })).code).toBe(1);
    const io = createFakeIo({ environment: { XDG_CONFIG_HOME: folder } });
    expect(await runCli(["status"], io)).toBe(0);
  });

  test("a saved key goes to the address that it was saved for, and to no other", async () => {
    await run(["context", "add", "here", "--url", "http://127.0.0.1:18083"]);
    const io = () => createFakeIo({ environment: { XDG_CONFIG_HOME: folder } });
    const sent: Array<string | null> = [];
    vi.stubGlobal("fetch", (_url: string, init: RequestInit) => {
      sent.push(new Headers(init.headers).get("authorization"));
      return Promise.reject(new TypeError("failed", { cause: { code: "ECONNREFUSED" } }));
    });
    const own = `Bearer ${world.adminKey}`;
    for (const [words, expected] of [
      [[], own],
      [["--url", "http://127.0.0.1:18083/"], own],
      [["--url", "http://127.0.0.1:18084"], null],
      [["--url", "https://127.0.0.1:18083"], null],
      [["--context", "here", "--url", "http://elsewhere.example:18083"], null],
    ] as const) {
      await runCli(["alarms", ...words], io());
      expect([words, sent.pop()]).toEqual([words, expected]);
    }
    const environment = { XDG_CONFIG_HOME: folder, FLAGSTONE_URL: "http://elsewhere.example" };
    await runCli(["alarms"], createFakeIo({ environment }));
    expect(sent).toEqual([null]);
  });

  test("one that is not there is told with those that are", async () => {
    await run(["context", "add", "here", "--url", "http://127.0.0.1:18083"]);
    const { code, error } = await run(["status", "--context", "there"]);
    expect([code, error]).toEqual([2, 'there is no context "there" (there are: here)\n']);
    expect((await run(["context", "use", "__proto__"])).code).toBe(2);
    expect((await run(["context", "remove", "here"])).code).toBe(0);
    expect((await run(["context"])).out).toBe("no contexts\n");
  });

  test("a file that is damaged is named", async () => {
    await run(["context", "add", "here", "--url", "http://127.0.0.1:18083"]);
    writeFileSync(join(folder, "flagstone/contexts.json"), "{");
    const { code, error } = await run(["status"]);
    expect([code, error]).toEqual([
      2,
      expect.stringContaining("it is not what this program wrote"),
    ]);
  });
});

test("names from outside cannot steer the terminal", async () => {
  const { sessions } = world.node.parts;
  const [first] = (await sessions.list({}, { countMax: 1 })).sessions;
  sessions.list = async () => ({
    sessions: [{ ...(first as never as object), clientId: "a\u001b[2J\u009bx" } as never],
    next: undefined,
    total: 1,
  });
  const { out } = await run(["sessions"]);
  expect(out).toContain("a\u00b7[2J\u00b7x");
});

test("a verify that finds damage ends with 1 and says where", async () => {
  world.node.parts.operator.verify = async () => ({
    ...{ slabs: 1, blocks: 2, ttvs: 3 },
    findings: [{ shard: 1, generation: 2, stream: 3, reason: "bad checksum" }],
  });
  const { code, error } = await run(["verify", "--shard", "1"]);
  expect(code).toBe(1);
  expect(error).toContain("bad checksum");
  expect(error).toContain("did not end well: 1 findings");
});

test("long work is waited for with a bar in a terminal, and without one to a pipe", async () => {
  const { clock, node } = world;
  node.parts.operator.verify = async ({ onProgress } = {}) => {
    onProgress?.({ done: 1, total: 2, unit: "blocks", what: "blocks" });
    await sleep(clock, 1200);
    return { slabs: 1, blocks: 2, ttvs: 3, findings: [] };
  };
  for (const isTerminal of [true, false]) {
    const paper = createFakeIo({
      environment: { FLAGSTONE_KEY: world.adminKey, XDG_CONFIG_HOME: folder },
    });
    const io = { ...paper, isTerminal, clock: systemClock };
    expect(await runCli(["verify", "--shard", "1"], io)).toBe(0);
    const drawn = `\r[${"#".repeat(15)}${".".repeat(15)}] shard 1 of 1, `;
    if (isTerminal) expect(paper.stderr()).toContain(drawn);
    // It leaves nothing on its line.
    expect(
      paper
        .stderr()
        .replaceAll(/\r[^\r]*(?=\r)/g, "")
        .trim(),
    ).toBe("");
    if (!isTerminal) expect(paper.stderr()).toBe("");
  }
});

test("--watch asks again until it is stopped", async () => {
  const paper = createFakeIo({
    environment: { FLAGSTONE_KEY: world.adminKey, XDG_CONFIG_HOME: folder },
  });
  const out = (text: string | Uint8Array): void => {
    paper.out(text);
    if (paper.stdout().length > 20) paper.signals.emit("SIGINT");
  };
  const io = { ...paper, out, clock: systemClock };
  expect(await runCli(["alarms", "--watch", "1"], io)).toBe(0);
  expect(paper.stdout()).toBe("no alarms\n".repeat(3));
});

test("times are given as ago or in full", async () => {
  for (const bad of ["yesterday", "1y", "-1h", "2026", "2026-13-01"]) {
    expect((await run(["history", "a", "--from", bad])).code, bad).toBe(2);
  }
  expect((await run(["history", "a", "--from", "2026-01-31", "--to", "1h"])).code).toBe(0);
});

test("a trace prints what comes until it is stopped, and ends on the node too", async () => {
  const paper = createFakeIo({
    environment: { FLAGSTONE_KEY: world.adminKey, XDG_CONFIG_HOME: folder },
  });
  const { tap } = world.node;
  let told = 0;
  const out = (text: string | Uint8Array): void => {
    paper.out(text);
    if (++told === 2) paper.signals.emit("SIGINT");
  };
  const io = { ...paper, out, clock: systemClock };
  const running = runCli(["trace", "--client", "dev\u001b7", "--for", "1"], io);
  await expect.poll(() => world.traces.list().length).toBe(2);
  const facts = { qos: 1, retain: false };
  for (const topic of ["x/1", "x/2"]) {
    tap.ofMessage({ event: "publish", clientId: "dev\u001b7", topic, facts });
  }
  expect(await running).toBe(0);
  expect(paper.stdout()).toMatch(/^[\d:.]{12} dev\u00b77 publish x\/1 qos=1 retain=false\n.*x\/2/);
  expect(world.traces.list().at(-1)).toMatchObject({ state: "ended", lines: 2 });
  const both = await run(["trace", "--client", "a", "--filter", "b"]);
  expect([both.code, both.error]).toEqual([2, expect.stringContaining("say what to watch")]);
});

test("an export to a file that is there leaves it, and begins no work", async () => {
  const path = join(folder, "orders.ndjson");
  writeFileSync(path, "mine");
  const { code, error } = await run(["export", "#", "--out", path]);
  expect([code, error]).toEqual([1, expect.stringContaining("it is there already")]);
  expect(readFileSync(path, "utf8")).toBe("mine");
  expect(world.tasks.list().map(({ kind }) => kind)).toEqual(["verify"]);
});

describe("health", () => {
  test("is 0 when ready, 1 with the reasons when not, 4 when nobody answers; no key is sent", async () => {
    const ready = await run(["health"]);
    expect(ready).toEqual({ code: 0, out: "ready\n[ok] log: fine\n", error: "" });
    world.node.state.node = "draining";
    expect(await run(["health"])).toMatchObject({ code: 1, out: "not ready: draining\n" });
    expect(await run(["health", "--live"])).toMatchObject({ code: 0, out: "ok\n" });
    const away = await run(["health", "--url", "http://10.9.9.9:1"]);
    expect([away.code, away.error]).toEqual([4, expect.stringMatching(/^cannot reach http:/)]);
    expect((await run(["health", "--within", "0"])).code).toBe(2);
  });
});

describe("users and rules of a node", () => {
  const withPassword = async (...argv: string[]) => {
    const environment = { FLAGSTONE_KEY: world.adminKey, XDG_CONFIG_HOME: folder };
    const paper = createFakeIo({ environment, stdin: "word\n" });
    const code = await runCli(argv, { ...paper, clock: systemClock });
    return { code, out: paper.stdout(), error: paper.stderr() };
  };

  test("users are added, changed, listed and removed where no file is named", async () => {
    expect(await withPassword("user", "add", "bob", "--scram")).toMatchObject({
      ...{ code: 0, out: 'added "bob"\n' },
    });
    expect(world.node.calls.at(-1)).toEqual({
      ...{ name: "access.putUser", args: ["bob", "word", true] },
    });
    const again = await withPassword("user", "add", "bob");
    expect([again.code, again.error]).toEqual([1, 'there is a user "bob" already\n']);
    expect((await withPassword("user", "passwd", "bob")).out).toBe('changed "bob"\n');
    expect((await run(["user", "list"])).out).toMatch(/^USER .*\nalice +scrypt .*\nbob +scrypt /);
    expect((await run(["user", "rm", "bob"])).out).toBe('removed "bob"\n');
    expect((await run(["user", "rm", "bob"])).code).toBe(1);
  });

  test("rules are shown, checked and replaced", async () => {
    const path = join(folder, "rules.acl");
    writeFileSync(path, "allow all\n");
    expect((await run(["acl", "show"])).out).toBe("allow all\n");
    const dry = await run(["acl", "apply", path, "--dry-run"]);
    expect(dry).toMatchObject({ code: 0, out: "the rules are good; nothing was changed\n" });
    expect((await run(["acl", "apply", path])).out).toBe("the rules hold now\n");
    expect(world.node.calls.map(({ name }) => name)).toContain("access.replaceRules");
    expect((await run(["acl", "apply", join(folder, "none")])).code).toBe(2);
  });
});
