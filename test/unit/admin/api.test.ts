import { describe, expect, test, vi } from "vitest";
import { type OperationName, operationNames, operations } from "../../../src/admin/contract.ts";
import { replaceFile, sleep } from "../../../src/base/index.ts";
import { storeErrors } from "../../../src/store/index.ts";
import { type Ask, adminWorld } from "../../support/admin-world.ts";

const api = (path: string): string => `/api/v1${path}`;
const cursor = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

const ids = { siteId: "ab".repeat(16), diskId: "cd".repeat(16) };

/** A request of each operation that reaches its handler. */
const good: Readonly<Record<OperationName, { path: string; body?: unknown }>> = {
  getStatus: { path: "/status" },
  getHealth: { path: "/health" },
  listAlarms: { path: "/alarms" },
  runDoctor: { path: "/doctor" },
  listClients: { path: "/clients?limit=5" },
  getClient: { path: "/clients/a" },
  kickClient: { path: "/clients/a" },
  listSessions: { path: "/sessions?backlog=true&limit=1" },
  getSession: { path: "/sessions/b" },
  peekBacklog: { path: "/sessions/b/backlog" },
  purgeSessions: { path: "/sessions/purge", body: { clientId: "b", dryRun: true } },
  endSessions: { path: "/sessions/end", body: { clientId: "b", dryRun: true } },
  removeSubscription: { path: "/sessions/b/subscriptions?filter=x%2F%2B" },
  listSubscriptions: { path: "/subscriptions?limit=2" },
  listSharedGroups: { path: "/shared-groups?backlog=true&limit=2" },
  listRetained: { path: "/retained?filter=%23" },
  getRetained: { path: "/retained/message?topic=x%2F1" },
  deleteRetained: { path: "/retained/delete", body: { filter: "x/#", dryRun: true } },
  publish: { path: "/publish", body: { topic: "a", payload: "x" } },
  queryHistory: { path: "/history?filter=%23" },
  listDatabases: { path: "/databases" },
  createDatabase: { path: "/databases", body: { name: "metrics" } },
  alterDatabase: { path: "/databases/metrics", body: { topics: ["a/#"] } },
  dropDatabase: { path: "/databases/metrics" },
  rotateDatabase: { path: "/databases/messages/rotate" },
  dropGenerations: { path: "/databases/messages/drop", body: { untilUs: 5 } },
  listGroups: { path: "/groups" },
  listShards: { path: "/shards" },
  listGenerations: { path: "/shards/1/generations" },
  listStreams: { path: "/shards/1/generations/1/streams" },
  explainFilter: { path: "/explain?filter=a" },
  listHolds: { path: "/holds" },
  putHold: { path: "/holds/keep", body: {} },
  releaseHold: { path: "/holds/keep" },
  listTasks: { path: "/tasks" },
  getTask: { path: "/tasks/verify-1" },
  startTask: { path: "/tasks", body: { kind: "verify" } },
  removeTask: { path: "/tasks/verify-1" },
  steerTask: { path: "/tasks/verify-1/pause" },
  listTraces: { path: "/traces" },
  startTrace: { path: "/traces", body: { clientId: "a", minutes: 1 } },
  readTrace: { path: "/traces/00000000/lines?limit=5" },
  stopTrace: { path: "/traces/00000000" },
  getConfig: { path: "/config" },
  reloadConfig: { path: "/config/reload", body: { dryRun: true } },
  listKeys: { path: "/keys" },
  createKey: { path: "/keys", body: { name: "n", role: "viewer" } },
  deleteKey: { path: "/keys/00000000" },
  listUsers: { path: "/users?limit=1" },
  putUser: { path: "/users/bob", body: { password: "word", scram: true } },
  deleteUser: { path: "/users/alice" },
  getRules: { path: "/rules" },
  putRules: { path: "/rules", body: { text: "allow all", dryRun: true } },
  getCluster: { path: "/cluster" },
  joinCluster: { path: "/cluster/sites", body: { ...ids, name: "n4", address: "n4:7400" } },
  steerSite: { path: "/cluster/sites/3/evacuate" },
  moveSite: { path: "/cluster/sites/3/address", body: { address: "n3:7400", zone: "b" } },
  setReplicas: { path: "/cluster/replicas", body: { count: 3 } },
  listAudit: { path: "/audit" },
};

function requestOf(name: OperationName): { path: string; ask: Ask } {
  const { path, body } = good[name];
  const method = operations[name].method.toUpperCase();
  return { path: api(path), ask: { method, ...(body === undefined ? {} : { body }) } };
}

const codeOf = ({ json }: { json: { code?: string } }): string | undefined => json?.code;

describe.each(operationNames)("%s", (name) => {
  const { path, ask: request } = requestOf(name);
  const operation = operations[name];

  test("needs a key, and a right one", async () => {
    const { ask } = await adminWorld();
    const none = await ask(path, { ...request, key: null });
    expect([none.status, codeOf(none)]).toEqual([401, "ADMIN_UNAUTHENTICATED"]);
    expect(none.headers.get("www-authenticate")).toBe("Bearer");
    const wrong = await ask(path, { ...request, key: `fs_${"0".repeat(8)}_${"A".repeat(43)}` });
    expect([wrong.status, codeOf(wrong)]).toEqual([401, "ADMIN_UNAUTHENTICATED"]);
  });

  test("answers a key of a lower role with 403, and does nothing", async () => {
    const { ask, viewerKey, operatorKey, node } = await adminWorld();
    const lower = operation.role === "operator" ? [viewerKey] : [viewerKey, operatorKey];
    for (const key of operation.role === "viewer" ? [] : lower) {
      const answer = await ask(path, { ...request, key });
      expect([answer.status, codeOf(answer)]).toEqual([403, "ADMIN_FORBIDDEN"]);
    }
    expect(operation.role === "viewer" ? [] : node.calls).toEqual([]);
  });

  test("refuses what it does not know, in a sentence", async () => {
    const { ask } = await adminWorld();
    const [bare, query = ""] = path.split("?");
    const more = `${bare}?${query}${query === "" ? "" : "&"}surprise=1`;
    const answer = await ask(more, request);
    expect([answer.status, codeOf(answer)]).toEqual([400, "ADMIN_INPUT_INVALID"]);
    expect(answer.json.faults).toContain("surprise: is not known here");
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
  });

  test("refuses huge and broken input without trying it", async () => {
    const { ask, node } = await adminWorld();
    const method = operation.method.toUpperCase();
    if (method !== "GET") {
      const huge = await ask(path, { method, rawBody: `{"a":"${"x".repeat(70_000)}"}` });
      expect([huge.status, codeOf(huge)]).toEqual([413, "ADMIN_BODY_TOO_LARGE"]);
      const broken = await ask(path, { method, rawBody: '{"a":' });
      expect([broken.status, codeOf(broken)]).toEqual([400, "ADMIN_BODY_UNREADABLE"]);
      const deep = await ask(path, { method, rawBody: "[".repeat(1000) });
      expect([deep.status, codeOf(deep)]).toEqual([400, "ADMIN_BODY_UNREADABLE"]);
      const odd = await ask(path, { method, body: { __proto__: null, odd: [1] } });
      expect([odd.status, codeOf(odd)]).toEqual([400, "ADMIN_INPUT_INVALID"]);
      for (const body of [[], 7, "x", null]) {
        const other = await ask(path, { method, body });
        expect(other.status, JSON.stringify(body)).toBe(400);
      }
    }
    expect(node.calls).toEqual([]);
  });

  test("refuses pages of another origin and other host names, whatever key they have", async () => {
    const { ask } = await adminWorld();
    const from: Array<Record<string, string>> = [
      { origin: "http://evil.example" },
      { origin: "null" },
      { origin: "http://127.0.0.1:9999" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ];
    for (const headers of from) {
      const answer = await ask(path, { ...request, headers });
      expect([answer.status, codeOf(answer)]).toEqual([403, "ADMIN_ORIGIN_REFUSED"]);
      expect(answer.headers.get("access-control-allow-origin")).toBeNull();
    }
    for (const host of ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io:18083"]) {
      const answer = await ask(path, { ...request, headers: { host } });
      expect([answer.status, codeOf(answer)]).toEqual([403, "ADMIN_HOST_REFUSED"]);
    }
  });

  test("says that the node is not ready where it needs one that is", async () => {
    const { ask, node } = await adminWorld();
    for (const state of ["starting", "draining"] as const) {
      node.state.node = state;
      const answer = await ask(path, request);
      if ("always" in operation) expect(answer.status).not.toBe(503);
      else expect([answer.status, codeOf(answer)]).toEqual([503, "ADMIN_NODE_NOT_READY"]);
    }
  });

  test("is written to the audit log exactly when it is a change", async () => {
    const { ask, audit, clock } = await adminWorld();
    const { status } = await ask(path, request);
    const { entries } = await clock.complete(audit.list(undefined, 10));
    const expected = { key: "first", role: "admin", operation: name, remote: "127.0.0.1", status };
    expect(entries).toEqual("change" in operation ? [expect.objectContaining(expected)] : []);
  });
});

describe("requests", () => {
  test("that miss everything are answered with what there is", async () => {
    const { ask } = await adminWorld();
    for (const path of ["/", "/api/v1/nothing", "/api/v2/status", `/${"x".repeat(5000)}`]) {
      const answer = await ask(path);
      expect([answer.status, codeOf(answer)]).toEqual([404, "ADMIN_NOT_FOUND"]);
      expect(answer.text.length).toBeLessThan(1000);
    }
    expect((await ask(api("/status"), { method: "DELETE" })).status).toBe(404);
  });

  test("with a wrong key are slowed down for that address, which right ones go on using", async () => {
    const { ask, clock } = await adminWorld();
    const wrong = { key: `fs_${"0".repeat(8)}_${"A".repeat(43)}`, remote: "10.0.0.1" };
    for (let count = 0; count < 20; count++) {
      expect((await ask(api("/status"), wrong)).status).toBe(401);
    }
    expect((await ask(api("/status"), wrong)).status).toBe(429);
    expect((await ask(api("/status"), { remote: "10.0.0.1" })).status).toBe(200);
    expect((await ask(api("/status"), { ...wrong, remote: "10.0.0.2" })).status).toBe(401);
    await clock.complete(sleep(clock, 61_000), 100_000);
    expect((await ask(api("/status"), wrong)).status).toBe(401);
  });

  test("say everything that is wrong with them at once", async () => {
    const { ask } = await adminWorld();
    const body = { topic: "a/+", qos: 3, retain: "yes", odd: 1 };
    const { json, status } = await ask(api("/publish"), { method: "POST", body });
    expect(status).toBe(400);
    expect(json.faults).toHaveLength(4);
    expect(json.faults).toContain("body.topic: a topic has no wildcards");
    expect(json.faults).toContain("body.odd: is not known here");
  });

  test("are told in words what is expected", async () => {
    const { ask } = await adminWorld();
    const { json } = await ask(api(`/clients?limit=${"9".repeat(20)}`));
    expect(json.faults).toEqual(["limit: a whole number is expected"]);
    expect((await ask(api("/clients?limit=0"))).json.faults).toEqual([
      "limit: expected >=1, got 0",
    ]);
    const made = await ask(api("/databases"), { method: "POST", body: { name: "Not a name" } });
    expect(made.json.faults).toEqual([
      "body.name: 1 to 64 of a-z, 0-9, _ and -, beginning with a letter",
    ]);
  });

  test("that name a key twice are refused", async () => {
    const { ask } = await adminWorld();
    const { json } = await ask(api("/clients?limit=1&limit=2"));
    expect(json.faults).toEqual(["limit: is there twice"]);
  });

  test("with a cursor that is none are refused", async () => {
    const { ask } = await adminWorld();
    for (const path of [
      "/subscriptions?after=x",
      "/history?filter=a&after=e30",
      "/audit?after=x",
      ...[["a", -1], ["a", 0.5], ["a", "1"], [1, 1], [], ["a", "b", 1], ["a", "b", "c", "d"]].map(
        (value) => `/subscriptions?after=${cursor(value)}`,
      ),
      ...[
        { timeUs: -1, shard: 0 },
        { timeUs: 1, shard: -1 },
        { timeUs: 1e300, shard: 0 },
      ].map((value) => `/history?filter=a&after=${cursor(value)}`),
      `/audit?after=${cursor([0, -1, 0])}`,
    ]) {
      expect((await ask(api(path))).json.code, path).toBe("ADMIN_INPUT_INVALID");
    }
  });

  test("by a name of the settings are answered", async () => {
    const { ask } = await adminWorld();
    for (const host of ["admin.example.org", "ADMIN.example.org:80", "[::1]:18083", "localhost"]) {
      expect((await ask(api("/status"), { headers: { host } })).status, host).toBe(200);
    }
  });

  test("beyond those at once are told to come back", async () => {
    const { ask } = await adminWorld({ requestsMax: 0 });
    const answer = await ask(api("/status"));
    expect([answer.status, codeOf(answer)]).toEqual([429, "ADMIN_BUSY"]);
    expect(answer.headers.get("retry-after")).toBe("5");
  });

  test("of probes and scrapers are answered all the same: a busy node is not a dead one", async () => {
    const { ask } = await adminWorld({ requestsMax: 0 });
    for (const path of ["/livez", "/readyz", "/startupz", "/metrics"]) {
      expect((await ask(path, { key: null })).status, path).toBe(200);
    }
  });

  test("with a key where a name belongs show it to nobody", async () => {
    const { ask, events, adminKey, audit, clock } = await adminWorld();
    const typed = encodeURIComponent(adminKey);
    const answers = [
      await ask(api(`/keys/${typed}`), { method: "DELETE" }),
      await ask(api(`/sessions/${typed}`)),
      await ask(api(`/clients/${typed}`), { method: "DELETE" }),
      await ask(api(`/nothing/${typed}`)),
      await ask(api(`/status?${typed}=1`)),
      await ask(api(`/tasks/${typed}`)),
      await ask(api("/tasks"), { method: "POST", body: { kind: adminKey } }),
      await ask(api("/sessions/purge"), { method: "POST", body: { clientId: adminKey } }),
      await ask(api("/audit")),
    ];
    const said = [
      ...answers.map(({ text }) => text),
      JSON.stringify(events),
      JSON.stringify(await clock.complete(audit.list(undefined, 100))),
    ].join("\n");
    expect(said).not.toContain(adminKey.slice(-30));
    expect(said).toContain(`${adminKey.slice(0, 12)}...`);
  });

  test("no answer may be stored or sniffed", async () => {
    const { ask } = await adminWorld();
    const { headers } = await ask(api("/status"));
    expect(headers.get("cache-control")).toBe("no-store");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("a failure of the store keeps its code; a fault of ours says nothing of itself", async () => {
    const { ask, node, events } = await adminWorld();
    const publish = { method: "POST", body: { topic: "a" } };
    node.state.failing = storeErrors.full();
    const full = await ask(api("/publish"), publish);
    expect([full.status, full.json.code, full.json.help]).toEqual([507, "STORE_DISK_FULL", "help"]);
    node.state.failing = new Error("secret internals");
    const ours = await ask(api("/publish"), publish);
    expect([ours.status, ours.json.code]).toEqual([500, "ADMIN_INTERNAL"]);
    expect(ours.text).not.toContain("secret internals");
    expect(events.some(({ event }) => event === "admin.request_failed")).toBe(true);
  });

  test("keys appear in no answer, log line or audit entry but the one that makes them", async () => {
    const { ask, events, adminKey, audit, clock } = await adminWorld();
    const made = await ask(api("/keys"), { method: "POST", body: { name: "n", role: "viewer" } });
    const { secret } = made.json;
    expect(secret).toMatch(/^fs_[0-9a-f]{8}_[A-Za-z0-9_-]{43}$/);
    const said = [
      (await ask(api("/keys"))).text,
      (await ask(api("/audit"))).text,
      JSON.stringify(events),
      JSON.stringify(await clock.complete(audit.list(undefined, 100))),
    ].join();
    expect(said).not.toContain(secret);
    expect(said).not.toContain(adminKey);
    expect((await ask(api("/status"), { key: secret })).status).toBe(200);
    await ask(api(`/keys/${made.json.id}`), { method: "DELETE" });
    expect((await ask(api("/status"), { key: secret })).status).toBe(401);
  });
});

describe("what is open without a key", () => {
  test("/livez lives also while the node starts or drains, and not once it failed", async () => {
    const { ask, node } = await adminWorld();
    for (const state of ["starting", "ready", "draining"] as const) {
      node.state.node = state;
      expect((await ask("/livez", { key: null })).status).toBe(200);
    }
    node.state.node = "failed";
    expect((await ask("/livez", { key: null })).status).toBe(503);
  });

  test("/readyz is 200 only when ready and no check failed, and names the checks", async () => {
    const { ask, node } = await adminWorld();
    expect(await ask("/readyz", { key: null })).toMatchObject({ status: 200, text: "ok\n" });
    expect((await ask("/readyz?verbose", { key: null })).text).toBe("ready\n[ok] log: fine\n");
    node.state.node = "draining";
    expect((await ask("/readyz", { key: null })).status).toBe(503);
    node.state.node = "starting";
    const starting = await ask("/readyz?verbose", { key: null });
    expect(starting.text).toBe("not ready: starting\nreplaying the log\n");
  });

  test("/startupz tells how far the start is", async () => {
    const { ask, node } = await adminWorld();
    node.state.node = "starting";
    const starting = await ask("/startupz", { key: null });
    expect(starting).toMatchObject({ status: 503, text: "starting: replaying the log\n" });
    node.state.node = "draining";
    expect((await ask("/startupz", { key: null })).status).toBe(200);
  });

  test("/metrics is open where the settings say so, and needs a key else", async () => {
    const open = await adminWorld();
    expect((await open.ask("/metrics", { key: null })).status).toBe(200);
    const closed = await adminWorld({ openMetrics: false });
    expect((await closed.ask("/metrics", { key: null })).status).toBe(401);
    expect((await closed.ask("/metrics", { key: closed.viewerKey })).status).toBe(200);
  });

  test("pages of another origin reach none of it", async () => {
    const { ask } = await adminWorld();
    for (const path of ["/livez", "/readyz", "/startupz", "/metrics"]) {
      const headers = { origin: "http://evil.example" };
      expect((await ask(path, { key: null, headers })).status).toBe(403);
    }
  });
});

describe("payloads", () => {
  const paths = ["/retained?", "/retained/message?topic=x%2F1&", "/sessions/b/backlog?"];

  test("are shown to operators who ask, to nobody else", async () => {
    const { ask, viewerKey, operatorKey } = await adminWorld();
    for (const path of paths) {
      const plain = await ask(api(path), { key: operatorKey });
      expect(plain.status).toBe(200);
      expect(plain.text).not.toContain("secret");
      expect((await ask(api(`${path}payload=true`), { key: operatorKey })).text).toContain(
        "secret",
      );
      const viewer = await ask(api(`${path}payload=true`), { key: viewerKey });
      expect([viewer.status, codeOf(viewer)]).toEqual([403, "ADMIN_FORBIDDEN"]);
    }
  });
});

describe("sessions", () => {
  test("are paged with a total", async () => {
    const { ask } = await adminWorld();
    const first = await ask(api("/sessions?limit=2"));
    expect(first.json).toMatchObject({ next: "b", total: 3 });
    const second = await ask(api("/sessions?limit=2&after=b"));
    expect(second.json.items.map((each: { clientId: string }) => each.clientId)).toEqual(["c"]);
    expect(second.json.next).toBeUndefined();
  });

  test("are purged by name or filter, and never all of them by an empty body", async () => {
    const { ask, node } = await adminWorld();
    const purge = (body: unknown) => ask(api("/sessions/purge"), { method: "POST", body });
    expect((await purge({})).json.detail).toContain("say which sessions");
    expect(node.calls).toEqual([]);
    expect((await purge({ clientId: "nobody" })).status).toBe(404);
    expect((await purge({ clientId: "b", backlog: true, dryRun: true })).json).toEqual({
      clientIds: ["b"],
      dryRun: true,
    });
    expect(node.calls.at(-1)).toEqual({
      name: "sessions.purge",
      args: [
        { clientId: "b", backlog: true },
        { countMax: 100, dryRun: true },
      ],
    });
  });

  test("their subscriptions are paged over sessions, and found by filter and by topic", async () => {
    const { ask } = await adminWorld();
    const seen: string[] = [];
    let after = "";
    do {
      const { json } = await ask(api(`/subscriptions?limit=2${after}`));
      expect(json.total).toBe(7);
      for (const { clientId, filter } of json.items) seen.push(`${clientId} ${filter}`);
      after = json.next === undefined ? "" : `&after=${json.next}`;
    } while (after !== "");
    const own = ["a own/a", "a x/+", "aa x/+", "b own/b", "b x/+", "c own/c", "c x/+"];
    expect(seen).toEqual(own);
    const byTopic = await ask(api("/subscriptions?topic=own%2Fb"));
    expect(byTopic.json.items).toMatchObject([{ clientId: "b", filter: "own/b" }]);
    const byFilter = await ask(api("/subscriptions?filter=x%2F%2B"));
    expect(byFilter.json.items).toMatchObject([
      { clientId: "a", isDurable: true },
      { clientId: "aa", isDurable: false },
      { clientId: "b", isDurable: true },
      { clientId: "c", isDurable: true },
    ]);
    // How many match is known only when all have been looked at.
    expect(byFilter.json.total).toBeUndefined();
  });

  test("client ids with slashes and spaces are found", async () => {
    const { ask, node } = await adminWorld();
    await ask(api("/sessions/a%2Fb%20c%25"));
    expect(node.calls.at(-1)).toEqual({ name: "sessions.get", args: ["a/b c%"] });
  });
});

test("the audit log says what a change was about, and not what it carried", async () => {
  const { ask, audit, clock } = await adminWorld();
  const body = { topic: "a/b", payload: "secret" };
  await ask(api("/publish"), { method: "POST", body });
  await ask(api("/sessions/purge"), {
    method: "POST",
    body: { clientIdPrefix: "dev", state: "offline" },
  });
  await ask(api("/clients/a"), { method: "DELETE" });
  const { entries } = await clock.complete(audit.list(undefined, 10));
  expect(entries.map(({ target }) => target)).toEqual([
    "a",
    "clientIdPrefix=dev state=offline",
    "topic=a/b",
  ]);
  expect(JSON.stringify(entries)).not.toContain("secret");
});

test("a message is published with all it carries", async () => {
  const { ask, node } = await adminWorld();
  const body = {
    ...{ topic: "a/b", payloadBase64: "AP8=", qos: 2, retain: true, messageExpiryS: 5 },
    ...{ contentType: "t", responseTopic: "r", userProperties: [["k", "v"]] },
  };
  expect((await ask(api("/publish"), { method: "POST", body })).json).toEqual({ done: true });
  expect(node.state.published).toEqual([
    {
      ...{ topic: "a/b", payload: Buffer.from([0, 255]), qos: 2, retain: true, messageExpiryS: 5 },
      ...{ contentType: "t", responseTopic: "r", userProperties: [["k", "v"]] },
    },
  ]);
});

test("nobody washes out of the audit log what higher roles did, by doing or by trying", async () => {
  const { ask, viewerKey, operatorKey } = await adminWorld();
  await ask(api("/keys"), { method: "POST", body: { name: "made", role: "viewer" } });
  await ask(api("/clients/a"), { method: "DELETE" });
  const body = { topic: "t".repeat(200), payload: "x" };
  // Each entry is some 400 bytes; a trail has room for 16 KiB of them.
  for (let count = 0; count < 120; count++) {
    await ask(api("/publish"), { method: "POST", body, key: viewerKey });
    await ask(api("/publish"), { method: "POST", body, key: operatorKey });
    await ask(api("/keys"), {
      method: "POST",
      body: { name: "n", role: "admin" },
      key: operatorKey,
    });
  }
  const seen: Array<{ operation: string; status: number }> = [];
  let after = "";
  let total = 0;
  do {
    const { json } = await ask(api(`/audit?limit=7${after}`));
    seen.push(...json.items);
    total = json.total;
    after = json.next === undefined ? "" : `&after=${json.next}`;
  } while (after !== "");
  expect(seen).toHaveLength(total);
  expect(seen.filter(({ status }) => status === 403).length).toBeLessThan(120);
  const done = seen.filter(({ status }) => status === 200).map(({ operation }) => operation);
  expect(done.filter((each) => each === "publish").length).toBeLessThan(120);
  expect(done.filter((each) => each !== "publish")).toEqual(["kickClient", "createKey"]);
});

describe("users and rules", () => {
  const put = (body: object) => ({ method: "PUT", body });

  test("a user is added, changed and removed, as new or as known where that is asked", async () => {
    const { ask, node } = await adminWorld();
    const taken = await ask(api("/users/alice"), put({ password: "x", expect: "new" }));
    expect([taken.status, codeOf(taken)]).toEqual([409, "ADMIN_THING_EXISTS"]);
    const nobody = await ask(api("/users/bob"), put({ password: "x", expect: "known" }));
    expect(nobody.status).toBe(404);
    expect(node.calls).toEqual([]);
    await ask(api("/users/bob"), put({ password: "x", scram: true, expect: "new" }));
    const { json } = await ask(api("/users?limit=1"));
    expect(json).toMatchObject({ items: [{ name: "alice" }], next: "alice", total: 2 });
    const rest = await ask(api("/users?after=alice"));
    expect(rest.json.items).toEqual([{ name: "bob", form: "scram-sha-256", sinceUs: 5 }]);
    expect((await ask(api("/users/bob"), { method: "DELETE" })).status).toBe(200);
    expect((await ask(api("/users/bob"), { method: "DELETE" })).status).toBe(404);
  });

  test("passwords are in no answer, log line or audit entry", async () => {
    const { ask, events } = await adminWorld();
    const password = "very-hidden";
    const answers = [
      (await ask(api("/users/bob"), put({ password }))).text,
      (await ask(api("/users/bob"), put({ password, scram: "maybe" }))).text,
      (await ask(api("/users"))).text,
      (await ask(api("/audit"))).text,
    ];
    expect(`${answers.join()}${JSON.stringify(events)}`).not.toContain(password);
  });

  test("rules are checked without being replaced, and replaced when they are", async () => {
    const { ask, node } = await adminWorld();
    expect((await ask(api("/rules"))).json).toEqual({ text: "allow all\n" });
    await ask(api("/rules"), put({ text: "a", dryRun: true }));
    await ask(api("/rules"), put({ text: "b" }));
    expect(node.calls).toEqual([
      { name: "access.checkRules", args: ["a"] },
      { name: "access.replaceRules", args: ["b"] },
    ]);
  });
});

test("who asks for the head of a stream leaves nothing open", async () => {
  const { ask, tasks, disk, clock } = await adminWorld();
  const bytes = 1024 * 1024;
  await clock.complete(replaceFile(disk, "admin/a.ndjson", Buffer.alloc(bytes)));
  vi.spyOn(tasks, "exported").mockReturnValue({ path: "admin/a.ndjson", bytes });
  const heads: number[] = [];
  for (let each = 0; each < 33; each++) {
    heads.push((await ask(api("/events"), { method: "HEAD" })).status);
    const { status, headers } = await ask(api("/tasks/export-1/export"), { method: "HEAD" });
    expect(headers.get("content-length")).toBe(String(bytes));
    heads.push(status);
  }
  expect(heads.filter((status) => status !== 200)).toEqual([]);
  const whole = await clock.complete(ask(api("/tasks/export-1/export")));
  expect(whole.text).toHaveLength(bytes);
});
