// The HTTP interface of a node through its life: it opens before the rooms do, is told when they are
// ready, when they failed and when they drain, and closes after them.

import { type AdminServer, openAdmin } from "../../admin/index.ts";
import { type Closer, toError } from "../../base/index.ts";
import type { Components } from "../assemble.ts";
import { address } from "../banner.ts";
import type { Settings } from "../config/keys.ts";
import { defaultLabel } from "../config/place.ts";
import type { DataDir } from "../data-dir.ts";
import { helpOfCode } from "../error-tables.ts";
import { nodeErrors } from "../errors.ts";
import { adminSettings } from "../room-settings.ts";
import { version } from "../version.ts";
import { NodeView } from "./host.ts";
import type { ReadyParts } from "./view.ts";

export type AdminAddress = Pick<AdminServer, "host" | "port" | "firstKey">;

export type Operated = {
  readonly address: AdminAddress;
  began(phase: string): void;
  ready(parts: ReadyParts): void;
  failed(): void;
  /** Not ready any more; long work stops between two steps. Before the rooms close. */
  drain(): Promise<void>;
  /** The machine beneath has died. */
  abandon(): Promise<void>;
};

export type OperatorPlace = {
  readonly settings: Settings;
  readonly dataDir: DataDir;
  readonly components: Components;
};

/**
 * Undefined where none is wanted, or where nobody chose its port and another program has it. The
 * closer owns it. @throws NODE_LISTEN_FAILED.
 */
export async function openOperator(
  place: OperatorPlace,
  closer: Closer,
): Promise<Operated | undefined> {
  const { settings, dataDir, components } = place;
  const { disk, clock, random, logger, configuration } = components;
  const view = closer.own(new NodeView({ settings, dataDir, clock, disk, configuration }));
  const helpOf = settings.cluster.name === "" ? helpOfCode : await memberHelp();
  const parts = { disk, clock, random, logger, version, helpOf };
  const opened = await openServer(place, view, parts);
  if (opened === undefined) return undefined;
  const server = closer.own(opened);
  const { host, port, firstKey, tasks } = server;
  view.watchTasks(() => tasks.activeCount);
  return {
    address: { host, port, firstKey },
    began: (phase) => view.began(phase),
    failed: () => view.failed(),
    ready: (ready) => {
      view.becameReady(ready);
      const running = view.running();
      if (running !== undefined)
        tasks.begin({ operator: running.operator, messages: running.store });
    },
    drain: async () => {
      view.drains();
      await server.stopTasks();
    },
    abandon: () => server.abandon(),
  };
}

/** A node by itself loads nothing of clusters. */
async function memberHelp(): Promise<(code: string) => string> {
  const { helpOfMember } = await import("../cluster/help.ts");
  return (code) => helpOfMember(code) ?? helpOfCode(code);
}

async function openServer(
  { settings, dataDir, components }: OperatorPlace,
  view: NodeView,
  parts: Parameters<typeof openAdmin>[3],
): Promise<AdminServer | undefined> {
  const { host, port } = settings.admin;
  try {
    return await openAdmin(adminSettings(settings), dataDir.path, view, parts);
  } catch (error) {
    const { code, message } = toError(error) as NodeJS.ErrnoException;
    // What is not the socket's is told as it is.
    if (code === undefined || !/^E[A-Z]+$/.test(code)) throw error;
    if (code === "EADDRINUSE" && !isChosen(components)) {
      // Two nodes on one machine: the second one serves its clients all the same.
      const advice = "choose one with --admin-port, or turn it off";
      components.logger.warn("admin.port_taken", { address: address(host, port), advice });
      return undefined;
    }
    const reason = code === "EADDRINUSE" ? "another program does" : message;
    throw nodeErrors.listenFailed(
      { key: "admin.port", address: address(host, port), reason },
      error,
    );
  }
}

/** Whether somebody asked for this address. A program that embeds a node did. */
function isChosen({ configuration }: Components): boolean {
  const values = configuration?.values();
  if (values === undefined) return true;
  const keys = ["admin.enabled", "admin.host", "admin.port"];
  return values.some(({ path, origin }) => keys.includes(path) && origin !== defaultLabel);
}
