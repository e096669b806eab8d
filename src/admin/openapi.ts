// The OpenAPI 3.1 document, made from the two tables of the contract. What the server checks and what
// this says come from the same schemas.

import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import { apiPrefix, contract, operationNames, operations } from "./contract.ts";

type Json = Readonly<Record<string, unknown>>;
type Parts = {
  readonly params?: GenericSchema;
  readonly query?: GenericSchema;
  readonly body?: GenericSchema;
  readonly answer: GenericSchema;
};

const problemResponse: Json = { $ref: "#/components/responses/Problem" };

export function openApiDocument(version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const name of operationNames) {
    const { path, method } = operations[name];
    const item = paths[`${apiPrefix}${path}`] ?? {};
    item[method] = operationOf(name);
    paths[`${apiPrefix}${path}`] = item;
  }
  Object.assign(paths, beside);
  return {
    openapi: "3.1.0",
    info: {
      title: "Flagstone",
      version,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      description:
        "The operator's interface of a Flagstone node. Every failure is application/problem+json with a stable `code`.",
    },
    paths,
    components: {
      securitySchemes: { key: { type: "http", scheme: "bearer", description: "An API key" } },
      schemas: { Problem: problemSchema },
      responses: {
        Problem: {
          description: "Refused or failed: `code` says why, `help` what to do",
          content: {
            "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } },
          },
        },
      },
    },
    security: [{ key: [] }],
  };
}

/** What answers something else than JSON, or wants no key: routes of their own. */
const beside: Readonly<Record<string, Record<string, Json>>> = {
  "/livez": probe("isAlive", "200 unless the node has failed: restart it then", "text/plain"),
  "/readyz": probe("isReady", "200 when new clients may come", "text/plain", [
    {
      ...{ name: "verbose", in: "query", required: false, allowEmptyValue: true },
      ...{ description: "the named checks, a line each", schema: { type: "string" } },
    },
  ]),
  "/startupz": probe("isStarted", "200 once started; 503 says how far it is", "text/plain"),
  "/metrics": probe("readMetrics", "What Prometheus reads; admin.openMetrics", "text/plain"),
  [`${apiPrefix}/openapi.json`]: probe("readOpenApi", "This document", "application/json"),
  [`${apiPrefix}/events`]: {
    get: {
      ...{ operationId: "readEvents", tags: ["node"], description: "Role: viewer." },
      summary: "Server-sent events: status each second, alarms and tasks when they change",
      responses: {
        200: {
          description:
            "`hello`, then `status` (as getStatus), `alarms` and `tasks` (arrays of what listAlarms and listTasks have), until either side ends it",
          content: { "text/event-stream": { schema: { type: "string" } } },
        },
        default: problemResponse,
      },
    },
  },
  [`${apiPrefix}/tasks/{task}/export`]: {
    get: {
      ...{ operationId: "downloadExport", tags: ["tasks"], description: "Role: operator." },
      summary: "The file of an export that is done: stored messages, one JSON object a line",
      parameters: parametersOf(contract.getTask.params, "path"),
      responses: {
        200: {
          description: "Done",
          content: { "application/x-ndjson": { schema: { type: "string" } } },
        },
        default: problemResponse,
      },
    },
  },
};

/** Without a key. */
function probe(
  operationId: string,
  summary: string,
  type: string,
  parameters: readonly Json[] = [],
): Record<string, Json> {
  const content = { [type]: { schema: { type: type === "text/plain" ? "string" : "object" } } };
  const responses = {
    200: { description: "Yes", content },
    503: { description: "Not now: the text says why", content: { "text/plain": {} } },
    default: problemResponse,
  };
  return { get: { operationId, summary, tags: ["probes"], security: [], parameters, responses } };
}

const problemSchema: Json = {
  type: "object",
  required: ["type", "title", "status", "detail", "code", "kind", "help"],
  properties: {
    type: { type: "string", format: "uri" },
    title: { type: "string" },
    status: { type: "integer" },
    detail: { type: "string" },
    code: { type: "string" },
    kind: {
      enum: ["retry", "conflict", "invalid", "closed", "limit", "corrupt", "internal"],
      type: "string",
    },
    help: { type: "string" },
    faults: { type: "array", items: { type: "string" } },
  },
};

function operationOf(name: (typeof operationNames)[number]): Json {
  const { role, tag, summary } = operations[name];
  const { params, query, body, answer }: Parts = contract[name];
  return {
    operationId: name,
    summary,
    description: `Role: ${role}.`,
    tags: [tag],
    parameters: [...parametersOf(params, "path"), ...parametersOf(query, "query")],
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { "application/json": { schema: schemaOf(body, "input") } },
          },
        }),
    responses: {
      200: {
        description: "Done",
        content: { "application/json": { schema: schemaOf(answer, "output") } },
      },
      default: problemResponse,
    },
  };
}

function parametersOf(schema: GenericSchema | undefined, place: "path" | "query"): Json[] {
  if (schema === undefined) return [];
  const { properties = {}, required = [] } = schemaOf(schema, "output") as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema: rest,
  }));
}

/** Checks that JSON Schema cannot say are left to the server. */
function schemaOf(schema: GenericSchema, typeMode: "input" | "output"): Json {
  const { $schema: _draft, ...rest } = toJsonSchema(schema, {
    typeMode,
    errorMode: "ignore",
    target: "draft-2020-12",
  });
  return rest as Json;
}
