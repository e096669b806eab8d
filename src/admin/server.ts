// The HTTP server: a socket, the application, and their end. It opens before the node is ready, so that
// orchestrators can watch a start, and closes last, so that they see it drain.

import type { IncomingMessage, Server } from "node:http";
import { createAdaptorServer } from "@hono/node-server";
import {
  type Clock,
  type Disk,
  joinPath,
  type Logger,
  type Random,
  toError,
} from "../base/index.ts";
import { limitPerAddress } from "./address-limit.ts";
import { type AdminApp, createAdminApp } from "./app.ts";
import { AuditLog } from "./audit.ts";
import { ApiKeys } from "./keys.ts";
import type { AdminHost } from "./ports.ts";
import type { AdminSettings } from "./settings.ts";
import { Tasks } from "./tasks.ts";
import { Traces } from "./traces.ts";

export type AdminComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly version: string;
  readonly helpOf: (code: string) => string;
};

export type AdminServer = {
  readonly host: string;
  /** The one that was given where the settings said 0. */
  readonly port: number;
  /** Secret of the first API key, when this start made it. It is told once and not kept. */
  readonly firstKey: string | undefined;
  readonly tasks: Tasks;
  /** Stops long work, which the next start goes on with. Before the store closes. */
  stopTasks(): Promise<void>;
  close(): Promise<void>;
  /** Gives the address back, and leaves the rest as it is: the machine beneath has died. */
  abandon(): Promise<void>;
};

/** Files of this room in the data directory. */
const folderName = "admin";
const headersMs = 10_000;
const requestMs = 60_000;
/** Open connections, strangers' too: beyond they are closed, and the broker keeps its descriptors. */
const connectionsMax = 512;
const connectionsOfAddressMax = 256;
/** Cursors may hold a client id of 64 KiB. */
const headerBytesMax = 128 * 1024;

/**
 * The address first: where it cannot be had no key is made that nobody would be told.
 * @throws what the socket says when the address cannot be had (EADDRINUSE, EACCES).
 */
export async function openAdmin(
  settings: AdminSettings,
  dataDir: string,
  host: AdminHost,
  components: AdminComponents,
): Promise<AdminServer> {
  let rooms: Rooms | undefined;
  const server = createAdaptorServer({
    fetch: (request, env) => rooms?.app.fetch(request, { remote: remoteOf(env) }) ?? notYet(),
    serverOptions: {
      headersTimeout: headersMs,
      requestTimeout: requestMs,
      maxHeaderSize: headerBytesMax,
      connectionsCheckingInterval: headersMs,
    },
    overrideGlobalObjects: false,
  }) as Server;
  server.maxConnections = connectionsMax;
  limitPerAddress(server, connectionsOfAddressMax);
  const port = await listen(server, settings);
  const { logger } = components;
  server.on("error", (error) => logger.warn("admin.server_error", { error: toError(error) }));
  try {
    rooms = await openRooms(settings, dataDir, host, components);
  } catch (error) {
    await closeServer(server);
    throw error;
  }
  const { app, audit, tasks, traces, firstKey } = rooms;
  return {
    host: settings.host,
    port,
    firstKey,
    tasks,
    stopTasks: () => tasks.close(),
    close: async () => {
      app.close();
      traces.close();
      await tasks.close();
      await closeServer(server);
      await audit.close();
    },
    abandon: async () => {
      app.close();
      await closeServer(server);
    },
  };
}

type Rooms = {
  readonly app: AdminApp;
  readonly audit: AuditLog;
  readonly tasks: Tasks;
  readonly traces: Traces;
  readonly firstKey: string | undefined;
};

async function openRooms(
  settings: AdminSettings,
  dataDir: string,
  host: AdminHost,
  components: AdminComponents,
): Promise<Rooms> {
  const { disk, clock, random, logger, version, helpOf } = components;
  const dir = joinPath(dataDir, folderName);
  await disk.makeDir(dir);
  const nowMs = (): number => Math.floor(clock.wallUs() / 1000);
  const { keys, firstSecret } = await ApiKeys.open(dir, { disk, random, logger, nowMs });
  const audit = new AuditLog(dir, settings.auditBytesMax, { disk, logger });
  const tasks = await Tasks.open(dir, { disk, clock, random, logger });
  const traces = new Traces({ clock, random, logger });
  const app = createAdminApp(settings, {
    ...{ host, keys, audit, tasks, traces, clock, disk, logger, version, helpOf },
  });
  return { app, audit, tasks, traces, firstKey: firstSecret };
}

/** In the moment between the socket and the keys. */
function notYet(): Response {
  return new Response("starting\n", { status: 503, headers: { "retry-after": "1" } });
}

function remoteOf(environment: unknown): string {
  const { incoming } = environment as { incoming?: IncomingMessage };
  return incoming?.socket.remoteAddress ?? "unknown";
}

function listen(server: Server, { host, port }: AdminSettings): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port, exclusive: true }, () => {
      server.off("error", reject);
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
