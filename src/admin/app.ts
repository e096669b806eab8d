// The HTTP application: routes out of the contract, and before them the checks that every request
// passes: host, origin, key, role, size, number at once. It knows no socket.
//
// Open without a key, since orchestrators and scrapers have none: /livez, /readyz, /startupz and, where
// it is allowed, /metrics. They tell no names.

import { type Context, Hono } from "hono";
import {
  type Clock,
  type CodedError,
  type Disk,
  isCodedError,
  type Logger,
  parseJson,
  toError,
} from "../base/index.ts";
import type { AuditLog, AuditTrail } from "./audit.ts";
import {
  apiPrefix,
  isAllowed,
  type OperationName,
  operationNames,
  operations,
} from "./contract.ts";
import { Downloads } from "./download.ts";
import { adminErrors } from "./errors.ts";
import { EventStreams } from "./events.ts";
import { type Caller, checkRole, checkSource, Gatekeeper } from "./guard.ts";
import type { Handlers } from "./handler-types.ts";
import { accessHandlers } from "./handlers/access.ts";
import { clusterHandlers } from "./handlers/cluster.ts";
import { messageHandlers } from "./handlers/messages.ts";
import { nodeHandlers, Rates, statusOf } from "./handlers/node.ts";
import { sessionHandlers } from "./handlers/sessions.ts";
import { storageHandlers } from "./handlers/storage.ts";
import { userHandlers } from "./handlers/users.ts";
import { checkInput } from "./input.ts";
import { type ApiKeys, withoutKeys } from "./keys.ts";
import { familiesOf, metricsContentType, metricsText } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import type { Role } from "./operations.ts";
import { Places } from "./places.ts";
import type { AdminHost, RunningParts } from "./ports.ts";
import { problemOf, problemType } from "./problem.ts";
import type { AdminSettings } from "./settings.ts";
import type { Tasks } from "./tasks.ts";
import type { Traces } from "./traces.ts";

export type AppParts = {
  readonly host: AdminHost;
  readonly keys: ApiKeys;
  readonly audit: AuditLog;
  readonly tasks: Tasks;
  readonly traces: Traces;
  readonly clock: Clock;
  readonly disk: Disk;
  readonly logger: Logger;
  readonly version: string;
  /** The help sentence of an error code of any room. */
  readonly helpOf: (code: string) => string;
};

/** What the socket side tells about a request. */
export type RequestEnvironment = { readonly remote: string };

/** What a request holds until it is answered: the place of its key. */
type RequestState = { giveBack?: () => void };

type Environment = { readonly Bindings: RequestEnvironment; readonly Variables: RequestState };

type Ask = Context<Environment>;

export type AdminApp = {
  /** All that it answers; `:name` is a parameter. */
  readonly routes: ReadonlyArray<{ readonly method: string; readonly path: string }>;
  fetch(request: Request, environment: RequestEnvironment): Promise<Response>;
  close(): void;
};

export function createAdminApp(settings: AdminSettings, parts: AppParts): AdminApp {
  const { host, tasks, clock } = parts;
  const app = new Hono<Environment>();
  const rates = new Rates(clock);
  const events = new EventStreams(
    {
      status: () => statusOf(host, tasks, clock, rates),
      alarms: () => host.alarms(),
      tasks: () => tasks.list(),
    },
    clock,
  );
  const api = new Api(settings, parts, events);
  parts.keys.onRevoked(() => events.recheck());
  app.use("*", (context, next) => api.guard(context, next));
  app.get("/livez", (context) =>
    context.text(
      host.state() === "failed" ? "failed\n" : "ok\n",
      host.state() === "failed" ? 503 : 200,
    ),
  );
  app.get("/readyz", (context) => api.ready(context));
  app.get("/startupz", (context) => api.startup(context));
  app.get("/metrics", (context) => api.metrics(context));
  // Made once: whoever has no key may ask for it as well.
  let document: ReturnType<typeof openApiDocument> | undefined;
  app.get(`${apiPrefix}/openapi.json`, (context) => {
    document ??= openApiDocument(parts.version);
    return context.json(document);
  });
  app.get(`${apiPrefix}/tasks/:task/export`, (context) => api.download(context));
  app.get(`${apiPrefix}/events`, (context) => api.events(context));
  for (const name of operationNames) {
    const { method, path } = operations[name];
    const route = `${apiPrefix}${path.replaceAll(/\{(\w+)\}/g, ":$1")}`;
    app.on(method.toUpperCase(), route, (context) => api.run(name, context));
  }
  app.notFound((context) => api.problem(context, notFound(context)));
  app.onError((error, context) => api.problem(context, error));
  const routes = app.routes.filter(({ path }) => !path.endsWith("*"));
  return {
    routes: routes.map(({ method, path }) => ({ method, path })),
    fetch: async (request, environment) => app.fetch(request, environment),
    close: () => events.close(),
  };
}

/** Who asks for the head reads no stream, which would wait for its reader for ever. */
function isHead(context: Ask): boolean {
  return context.req.method === "HEAD";
}

function notFound(context: Ask): CodedError {
  const path = withoutKeys(context.req.path);
  const shown = path.length > 200 ? `${path.slice(0, 200)}...` : path;
  return adminErrors.notFound({ method: context.req.method, path: shown });
}

class Api {
  readonly #settings: AdminSettings;
  readonly #parts: AppParts;
  readonly #events: EventStreams;
  readonly #gate: Gatekeeper;
  readonly #handlers: Handlers;
  readonly #downloads: Downloads;
  readonly #places: Places;

  constructor(settings: AdminSettings, parts: AppParts, events: EventStreams) {
    const { host, keys, audit, tasks, traces, clock } = parts;
    this.#settings = settings;
    this.#parts = parts;
    this.#events = events;
    this.#downloads = new Downloads(parts.disk);
    this.#places = new Places("requests at once", settings.requestsMax);
    this.#gate = new Gatekeeper(keys, () => clock.elapsedMs());
    const running = (): RunningParts => {
      const found = host.running();
      if (found === undefined) throw adminErrors.starting({ state: host.state() });
      return found;
    };
    this.#handlers = {
      ...nodeHandlers(host, tasks, clock),
      ...sessionHandlers(running, clock),
      ...messageHandlers(running, clock),
      ...storageHandlers(running),
      ...userHandlers(running),
      ...clusterHandlers(running),
      ...accessHandlers({ keys, audit, tasks, traces, running }),
    };
  }

  /** What every request passes, whatever it asks for. */
  async guard(context: Ask, next: () => Promise<void>): Promise<void> {
    checkSource((name) => context.req.header(name), this.#settings.hosts);
    try {
      await next();
    } finally {
      context.get("giveBack")?.();
    }
    context.header("cache-control", "no-store");
    context.header("x-content-type-options", "nosniff");
    context.header("referrer-policy", "no-referrer");
  }

  async run(name: OperationName, context: Ask): Promise<Response> {
    const operation = operations[name];
    const caller = this.#caller(context);
    const isChange = "change" in operation;
    let body: unknown;
    try {
      checkRole(caller, operation.role, name);
      if (!("always" in operation)) this.#needsReady();
      body = await readBody(context, this.#settings.bodyBytesMax);
      const raw = {
        params: context.req.param() as Record<string, string>,
        query: new URL(context.req.url).searchParams,
        body,
      };
      const input = checkInput(name, raw);
      const handler = this.#handlers[name] as (input: unknown, caller: Caller) => unknown;
      const answer = await handler(input, caller);
      if (isChange) await this.#audit({ name, context, caller, body, error: undefined });
      return context.json(answer as object);
    } catch (error) {
      if (isChange) await this.#audit({ name, context, caller, body, error });
      throw error;
    }
  }

  async ready(context: Ask): Promise<Response> {
    const { host } = this.#parts;
    const state = host.state();
    const checks = state === "ready" ? await host.checks() : [];
    const isReady = state === "ready" && checks.every((check) => check.state !== "failed");
    const status = isReady ? 200 : 503;
    if (context.req.query("verbose") === undefined) {
      return context.text(isReady ? "ok\n" : `not ready: ${state}\n`, status);
    }
    const lines = checks.map((check) => `[${check.state}] ${check.name}: ${check.message}\n`);
    const progress = state === "starting" ? `${host.progress()}\n` : "";
    return context.text(
      `${isReady ? "ready" : `not ready: ${state}`}\n${progress}${lines.join("")}`,
      status,
    );
  }

  startup(context: Ask): Response {
    const { host } = this.#parts;
    const state = host.state();
    if (state === "starting") return context.text(`starting: ${host.progress()}\n`, 503);
    return context.text(
      `${state === "failed" ? "failed" : "started"}\n`,
      state === "failed" ? 503 : 200,
    );
  }

  async metrics(context: Ask): Promise<Response> {
    if (!this.#settings.openMetrics) checkRole(this.#caller(context), "viewer", "/metrics");
    const text = await metricsText(familiesOf(this.#parts.host.metrics()));
    return context.body(text, 200, { "content-type": metricsContentType });
  }

  events(context: Ask): Response {
    const caller = this.#caller(context);
    checkRole(caller, "viewer", "events");
    const { keys } = this.#parts;
    const headers = { "content-type": "text/event-stream" };
    if (isHead(context)) return context.body(null, 200, headers);
    return context.body(
      this.#events.open({ keyId: caller.keyId, mayRead: () => keys.has(caller.keyId) }),
      200,
      headers,
    );
  }

  /** The file of an export, as NDJSON. It has payloads. */
  async download(context: Ask): Promise<Response> {
    const caller = this.#caller(context);
    checkRole(caller, "operator", "to see payloads");
    const { path, bytes } = this.#parts.tasks.exported(context.req.param("task") ?? "");
    const headers = {
      "content-type": "application/x-ndjson",
      "content-length": String(bytes),
      "content-disposition": "attachment",
    };
    if (isHead(context)) return context.body(null, 200, headers);
    return context.body(await this.#downloads.open(path, bytes, caller.keyId), 200, headers);
  }

  problem(context: Ask, error: unknown): Response {
    const { logger, helpOf } = this.#parts;
    const problem = problemOf(error, helpOf);
    if (problem.kind === "internal") {
      logger.error("admin.request_failed", {
        method: context.req.method,
        route: context.req.routePath,
        error: toError(error),
      });
    }
    const headers: Record<string, string> = { "content-type": problemType };
    if (problem.status === 401) headers["www-authenticate"] = "Bearer";
    if (problem.status === 429 || problem.status === 503) headers["retry-after"] = "5";
    return context.body(JSON.stringify(problem), problem.status as 400, headers);
  }

  /**
   * Who asks, with a place until it is answered: slow bodies of one key leave room for others. Nothing
   * waits for what strangers send, so they need none, and probes find a busy node alive.
   */
  #caller(context: Ask): Caller {
    const caller = this.#gate.admit((name) => context.req.header(name), context.env.remote);
    context.set("giveBack", this.#places.take(caller.keyId));
    return caller;
  }

  #needsReady(): void {
    const { host } = this.#parts;
    if (host.running() === undefined) throw adminErrors.starting({ state: host.state() });
  }

  /** What was refused for its role or input is audited as well: somebody tried. */
  async #audit({ name, context, caller, body, error }: Audited): Promise<void> {
    const { audit, clock, helpOf } = this.#parts;
    const problem = error === undefined ? undefined : problemOf(error, helpOf);
    const needs = operations[name].role;
    const entry = {
      timeMs: Math.floor(clock.wallUs() / 1000),
      key: caller.keyName,
      role: caller.role,
      remote: caller.remote,
      operation: name,
      target: targetOf(context.req.param() as Record<string, string>, body),
      status: problem?.status ?? 200,
      code: problem?.code,
    };
    await audit.add(entry, trailOf(caller.role, needs, problem?.code));
  }
}

function trailOf(role: Role, needs: Role, code: string | undefined): AuditTrail {
  // A handler may ask for more than its operation does: a drop as a task.
  if (!isAllowed(role, needs) || code === "ADMIN_FORBIDDEN") return "refused";
  if (needs === "admin") return "admin";
  return role === "admin" ? "byAdmin" : "operator";
}

type Audited = {
  readonly name: OperationName;
  readonly context: Ask;
  readonly caller: Caller;
  readonly body: unknown;
  /** Why it was refused or failed. */
  readonly error: unknown;
};

/** Names in a body that say what a change is about; never what it carries. */
const telling = ["clientId", "clientIdPrefix", "topic", "filter", "name", "kind", "state"] as const;
const targetLengthMax = 200;

function targetOf(params: Readonly<Record<string, string>>, body: unknown): string {
  const said = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  const names = telling.flatMap((key) => {
    const value = said[key];
    return typeof value === "string" ? [`${key}=${value}`] : [];
  });
  return withoutKeys([...Object.values(params), ...names].join(" ")).slice(0, targetLengthMax);
}

/** Undefined without a body. @throws ADMIN_BODY_TOO_LARGE, ADMIN_BODY_UNREADABLE. */
async function readBody(context: Ask, limitBytes: number): Promise<unknown> {
  const { body } = context.req.raw;
  if (body === null) return undefined;
  // Said beforehand: nobody waits for what will be refused.
  if (Number(context.req.header("content-length") ?? 0) > limitBytes) {
    throw adminErrors.bodyTooLarge({ limitBytes });
  }
  const bytes = await bytesOf(body, limitBytes);
  if (bytes.length === 0) return undefined;
  const type = context.req.header("content-type") ?? "";
  if (!/^application\/json\b/i.test(type)) {
    throw adminErrors.bodyUnreadable({ reason: "its content type is not application/json" });
  }
  try {
    return parseJson(bytes.toString("utf8"));
  } catch (error) {
    throw adminErrors.bodyUnreadable({ reason: toError(error).message.slice(0, 100) });
  }
}

async function bytesOf(body: ReadableStream<Uint8Array>, limitBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of body) {
      sizeBytes += chunk.length;
      if (sizeBytes > limitBytes) throw adminErrors.bodyTooLarge({ limitBytes });
      chunks.push(chunk);
    }
  } catch (error) {
    if (isCodedError(error)) throw error;
    // Whoever sent it went away: no fault of ours.
    throw adminErrors.bodyUnreadable({ reason: "it was cut off" });
  }
  return Buffer.concat(chunks);
}
