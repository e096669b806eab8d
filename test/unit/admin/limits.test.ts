// What a key may not do although its operation is open to it, and what nobody may send.

import { expect, test } from "vitest";
import { adminWorld } from "../../support/admin-world.ts";

/** Its body does not come before it is ended. */
function slowRequest(key: string | undefined, contentLength: number) {
  let end: () => void = () => undefined;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      end = () => controller.close();
    },
  });
  const headers = {
    ...{ host: "127.0.0.1:18083", "content-type": "application/json" },
    ...{ "content-length": String(contentLength) },
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
  };
  const init = { method: "POST", headers, body, duplex: "half" };
  const request = new Request("http://127.0.0.1:18083/api/v1/publish", init as RequestInit);
  return { request, end };
}

test("a drop is begun and gone on with by admins alone; operators may stop one", async () => {
  const { ask, node, tasks, operatorKey } = await adminWorld();
  const { operator, store } = node.parts;
  // One that has not come to its end yet.
  Object.assign(operator, { generations: () => [{ state: "dropping" }] });
  tasks.begin({ operator, messages: store });
  const begin = { method: "POST", body: { kind: "drop", untilUs: 5 } };
  const refused = await ask("/api/v1/tasks", { ...begin, key: operatorKey });
  expect([refused.status, refused.json.code]).toEqual([403, "ADMIN_FORBIDDEN"]);
  expect(tasks.list()).toEqual([]);
  const { id } = (await ask("/api/v1/tasks", begin)).json;
  const steer = async (verb: string, key?: string) => {
    const path = `/api/v1/tasks/${id}/${verb}`;
    const { status } = await ask(path, { method: "POST", ...(key === undefined ? {} : { key }) });
    return [status, tasks.get(id).state];
  };
  expect(await steer("pause", operatorKey)).toEqual([200, "paused"]);
  expect(await steer("resume", operatorKey)).toEqual([403, "paused"]);
  expect(await steer("resume")).toEqual([200, "running"]);
  expect(await steer("cancel", operatorKey)).toEqual([200, "cancelled"]);
});

test("who was refused within an operation does not wash out what others did", async () => {
  const { ask, operatorKey } = await adminWorld();
  await ask("/api/v1/clients/a", { method: "DELETE", key: operatorKey });
  // Some 170 bytes each; a trail has room for 16 KiB of them.
  const body = { kind: "drop", untilUs: 5 };
  for (let count = 0; count < 150; count++) {
    const { status } = await ask("/api/v1/tasks", { method: "POST", body, key: operatorKey });
    expect(status).toBe(403);
  }
  const { json } = await ask("/api/v1/audit?limit=1000");
  const done = json.items.filter(({ status }: { status: number }) => status === 200);
  expect(done).toMatchObject([{ operation: "kickClient" }]);
});

test("a body that is announced too large is refused before it comes, and gives its slot back", async () => {
  const { ask, app, clock, adminKey } = await adminWorld({ requestsMax: 1 });
  const announced = slowRequest(adminKey, 64 * 1024 + 1).request;
  const answer = await clock.complete(app.fetch(announced, { remote: "127.0.0.1" }));
  expect(answer.status).toBe(413);
  expect(await answer.json()).toMatchObject({ code: "ADMIN_BODY_TOO_LARGE" });
  expect((await ask("/api/v1/status")).status).toBe(200);
  // One of the size that may come is waited for.
  void app.fetch(slowRequest(adminKey, 64 * 1024).request, { remote: "127.0.0.1" });
  expect((await ask("/api/v1/status")).status).toBe(429);
});

test("slow bodies of one key leave half of the places to others, and give theirs back", async () => {
  const { ask, app, clock, operatorKey } = await adminWorld({ requestsMax: 4 });
  const slow = [1, 2].map(() => {
    const { request, end } = slowRequest(operatorKey, 100);
    return { answer: app.fetch(request, { remote: "127.0.0.1" }), end };
  });
  const third = await ask("/api/v1/status", { key: operatorKey });
  expect([third.status, third.json.code]).toEqual([429, "ADMIN_BUSY"]);
  expect(third.json.detail).toBe("requests at once of this key are at their limit of 2");
  expect(third.text + JSON.stringify([...third.headers])).not.toContain(operatorKey.slice(-30));
  // Others are answered meanwhile, however often they ask.
  for (let count = 0; count < 5; count++) expect((await ask("/api/v1/status")).status).toBe(200);
  for (const { answer, end } of slow) {
    end();
    expect((await clock.complete(answer)).status).toBe(400);
  }
  expect((await ask("/api/v1/status", { key: operatorKey })).status).toBe(200);
});

test("slow bodies of strangers are not waited for and take no place", async () => {
  const { ask, app, clock } = await adminWorld({ requestsMax: 2 });
  for (let count = 0; count < 5; count++) {
    for (const key of [undefined, `fs_abcdefgh_${"x".repeat(43)}`]) {
      const { request } = slowRequest(key, 100);
      const answer = await clock.complete(app.fetch(request, { remote: "127.0.0.1" }));
      expect(answer.status).toBe(401);
    }
  }
  expect((await ask("/api/v1/status")).status).toBe(200);
});

test("probes that wait for their checks take no place", async () => {
  const { ask, app, node } = await adminWorld({ requestsMax: 1 });
  node.host.checks = () => new Promise(() => undefined);
  for (let count = 0; count < 5; count++) {
    const headers = { host: "127.0.0.1:18083" };
    void app.fetch(new Request("http://127.0.0.1:18083/readyz", { headers }), { remote: "::1" });
  }
  expect((await ask("/api/v1/status")).status).toBe(200);
});

test("thresholds of databases are bounded, by first level and by depth", async () => {
  const { ask, node } = await adminWorld();
  const roots = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`r${n}`, [1]]));
  const deep = (count: number) => Array.from({ length: count }, () => 7);
  const put = async (layoutOptions: object) => {
    const created = { method: "POST", body: { name: "metrics", layoutOptions } };
    const altered = { method: "PATCH", body: { layoutOptions } };
    return [
      (await ask("/api/v1/databases", created)).status,
      (await ask("/api/v1/databases/metrics", altered)).status,
    ];
  };
  expect(await put({ rootThresholds: roots(1000) })).toEqual([200, 200]);
  expect(await put({ thresholds: deep(16), rootThresholds: { a: deep(16) } })).toEqual([200, 200]);
  const { calls } = node;
  const before = calls.length;
  expect(await put({ rootThresholds: roots(1001) })).toEqual([400, 400]);
  expect(await put({ thresholds: deep(17) })).toEqual([400, 400]);
  expect(await put({ rootThresholds: { a: deep(17) } })).toEqual([400, 400]);
  for (const level of ["", "a/b", "#", "+", "x".repeat(257)]) {
    expect(await put({ rootThresholds: { [level]: [1] } }), level).toEqual([400, 400]);
  }
  expect(await put({ rootThresholds: { a: [] } })).toEqual([400, 400]);
  expect(calls.length).toBe(before);
});
