// Groups that begin with a state which this disk holds already: what a node that ran by itself has
// becomes the first replica of a cluster. Offline, in a directory that no host has open.
//
// Keeps: the group goes on behind the entry up to which the state is; term 1 and its vote are spent,
// so the first election is for term 2. Durable when it resolves; a directory that was cut off in the
// middle of it is made anew, never gone on with.

import { type Disk, joinPath } from "../../base/index.ts";
import type { NodeId, SnapshotMeta } from "../core/types.ts";
import { createDiskSnapshots } from "./disk-snapshots.ts";
import { metaPath } from "./identity.ts";
import { MetaFile } from "./meta-file.ts";
import { defaultHostSettings } from "./ports.ts";

export type Beginning = {
  readonly group: number;
  /** The last entry that is part of the state; 0: nothing has happened yet. */
  readonly index: number;
  readonly machineVersion: number;
  /** What the machine makes of its state (`StateMachine.capture`). */
  readonly pieces: readonly Uint8Array[];
};

/** REQUIRES: `dir` is formatted, and nothing but its identity and members are in it. */
export async function beginReplicas(
  disk: Disk,
  dir: string,
  node: NodeId,
  beginnings: readonly Beginning[],
): Promise<void> {
  const chunkBytes = defaultHostSettings.snapshotChunkBytes;
  const snapshots = createDiskSnapshots(disk, joinPath(dir, "snapshots"), { chunkBytes });
  const metas = await MetaFile.open(disk, metaPath(dir));
  try {
    for (const { group, index, machineVersion, pieces } of beginnings) {
      const term = index === 0 ? 0 : 1;
      const configuration = { voters: [node], learners: [] };
      const meta: SnapshotMeta = { index, term, configuration, configurationIndex: 0 };
      const hardState = { term, vote: term === 0 ? 0 : node, commit: index };
      const life = { epoch: 1, incarnation: 1, configurationIndex: 0 };
      const marks = { repairing: false, removed: false };
      // One whose term nobody can read is not opened: the snapshot is the last to come.
      await metas.saved({ group, node, hardState, ...life, ...marks });
      await snapshots.write({ group, epoch: life.epoch, meta, machineVersion }, pieces);
    }
  } finally {
    await metas.close();
  }
}
