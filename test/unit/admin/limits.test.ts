// What a key may not do although its operation is open to it, and what nobody may send.

import { expect, test } from "vitest";
import { adminWorld } from "../../support/admin-world.ts";

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
  // It never comes, and never ends.
  const body = new ReadableStream<Uint8Array>();
  const announced = (contentLength: number) => {
    const headers = {
      ...{ host: "127.0.0.1:18083", authorization: `Bearer ${adminKey}` },
      ...{ "content-type": "application/json", "content-length": String(contentLength) },
    };
    const init = { method: "POST", headers, body, duplex: "half" };
    return new Request("http://127.0.0.1:18083/api/v1/publish", init as RequestInit);
  };
  const answer = await clock.complete(app.fetch(announced(64 * 1024 + 1), { remote: "127.0.0.1" }));
  expect(answer.status).toBe(413);
  expect(await answer.json()).toMatchObject({ code: "ADMIN_BODY_TOO_LARGE" });
  expect((await ask("/api/v1/status")).status).toBe(200);
  // One of the size that may come is waited for.
  void app.fetch(announced(64 * 1024), { remote: "127.0.0.1" });
  expect((await ask("/api/v1/status")).status).toBe(429);
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
