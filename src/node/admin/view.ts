// What checks and metrics look at: the node as far as it has come.

import type { AdminHost } from "../../admin/index.ts";
import type { Clock, Disk, Histogram } from "../../base/index.ts";
import type { BoundListener, NodeParts, SecurityFace } from "../assemble.ts";
import type { DataDir } from "../data-dir.ts";
import type { ListenerCertificate } from "../security/certificates.ts";

/** Of a node that is ready. */
export type ReadyParts = NodeParts & {
  readonly listeners: readonly BoundListener[];
  readonly readyMs: number;
  /** In use by listeners. */
  readonly certificates: () => readonly ListenerCertificate[];
  readonly security?: SecurityFace;
};

export type Viewed = Pick<AdminHost, "state" | "progress" | "alarms" | "running"> & {
  readonly dataDir: Pick<DataDir, "path">;
  readonly clock: Clock;
  readonly disk: Disk;
  readonly ready: ReadyParts | undefined;
  readonly loopDelay: Histogram;
  readonly activeTasks: number;
};
