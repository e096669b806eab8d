import { expect, test } from "vitest";
import { createAdminClient } from "../../../src/admin/client.ts";
import { operationNames, operations } from "../../../src/admin/contract.ts";
import { openApiDocument } from "../../../src/admin/openapi.ts";
import { adminWorld } from "../../support/admin-world.ts";

test("the OpenAPI document has every operation, with parameters, body, answer and problem", () => {
  const { openapi, paths } = openApiDocument("1.0.0") as {
    openapi: string;
    paths: Record<string, Record<string, Record<string, unknown>>>;
  };
  expect(openapi).toBe("3.1.0");
  for (const name of operationNames) {
    const { path, method } = operations[name];
    const found = paths[`/api/v1${path}`]?.[method];
    expect(found, name).toMatchObject({
      operationId: name,
      responses: { 200: { content: { "application/json": { schema: { type: "object" } } } } },
    });
    const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter);
    const parameters = found?.parameters as Array<{ name: string; in: string; required: boolean }>;
    const documented = parameters.filter((each) => each.in === "path");
    expect(documented.map((each) => each.name).sort(), name).toEqual(inPath.sort());
    expect(documented.every(({ required }) => required)).toBe(true);
    if (method === "post" && !["rotateDatabase", "steerTask", "steerSite"].includes(name)) {
      expect(found?.requestBody, name).toBeDefined();
    }
  }
  const limit = paths["/api/v1/clients"]?.get?.parameters as unknown[];
  expect(limit).toContainEqual({
    name: "limit",
    in: "query",
    required: false,
    description: "items of a page; 100 when it is not given",
    schema: { type: "integer", minimum: 1, maximum: 1000 },
  });
});

test("the OpenAPI document has every route that there is, and no other", async () => {
  const { app } = await adminWorld();
  const { paths } = openApiDocument("1.0.0") as { paths: Record<string, object> };
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const there = app.routes.map(
    ({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`,
  );
  expect(documented.sort()).toEqual(there.sort());
  expect(documented).toContain("GET /api/v1/events");
  expect(documented).toContain("GET /api/v1/tasks/{task}/export");
  const ids = Object.values(paths).flatMap((item) =>
    Object.values(item).map(({ operationId }: { operationId: string }) => operationId),
  );
  expect(new Set(ids).size).toBe(ids.length);
});

test("the document is answered to whoever asks for it from this node", async () => {
  const { ask } = await adminWorld();
  const { json, status } = await ask("/api/v1/openapi.json", { key: null });
  expect(status).toBe(200);
  expect(json).toEqual(JSON.parse(JSON.stringify(openApiDocument("1.2.3"))));
});

test("what a change is, and what it needs: nothing a viewer may do changes anything", () => {
  for (const name of operationNames) {
    const operation = operations[name];
    if ("change" in operation) expect(operation.role, name).not.toBe("viewer");
    if (operation.method === "get") expect("change" in operation, name).toBe(false);
  }
});

test("the client reaches every operation and turns problems into coded errors", async () => {
  const { app, clock, adminKey, node } = await adminWorld();
  const send = ((url: string, init: RequestInit) => {
    const headers = new Headers(init.headers);
    headers.set("host", "127.0.0.1");
    const { signal: _signal, ...rest } = init;
    return clock.complete(app.fetch(new Request(url, { ...rest, headers }), { remote: "r" }));
  }) as typeof fetch;
  const admin = createAdminClient({ url: "http://127.0.0.1/", key: adminKey, fetch: send });
  expect((await admin.getStatus()).version).toBe("1.2.3");
  const page = await admin.listSessions({ query: { backlog: true, limit: 5 } });
  expect(page.items.map(({ clientId }) => clientId)).toEqual(["b"]);
  await admin.getSession({ params: { clientId: "b" } });
  await expect(admin.getSession({ params: { clientId: "a/../b?#" } })).rejects.toMatchObject({
    code: "ADMIN_THING_NOT_FOUND",
    kind: "invalid",
    message: 'there is no durable session of client "a/../b?#"',
  });
  expect(node.calls.at(-1)?.args).toEqual(["a/../b?#"]);
  await admin.publish({ body: { topic: "a", payload: "ä" } });
  expect(node.state.published.at(-1)?.payload).toEqual(Buffer.from("ä"));
});

test("the client says what is wrong with an address", async () => {
  const url = "http://127.0.0.1:9";
  const refuse = (async () => {
    throw new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
  }) as typeof fetch;
  const nobody = createAdminClient({ url, fetch: refuse });
  await expect(nobody.getStatus()).rejects.toMatchObject({
    code: "ADMIN_CALL_FAILED",
    message: "cannot reach http://127.0.0.1:9: nobody listens there",
  });
  const other = (async () => new Response("<html>")) as typeof fetch;
  const somebody = createAdminClient({ url: "http://x", fetch: other });
  await expect(somebody.getStatus()).rejects.toThrow("which no Flagstone does");
});
