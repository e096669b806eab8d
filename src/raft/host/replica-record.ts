// What the meta file says of one replica: who it is, in which life, its term and vote, and whether
// it is in repair or was removed.
//
// Keeps: a change builds on all changes before it, so a write that is repeated never brings back
// anything older. A volume without space is waited for, since nothing was promised on the write.

import { isCodedError } from "../../base/index.ts";
import type { HardState } from "../core/types.ts";
import type { GroupMeta, MetaFile, SaveDone } from "./meta-file.ts";

export type RecordHost = {
  readonly metas: MetaFile;
  /** At the next tick. */
  readonly later: (run: () => void) => void;
};

export class ReplicaRecord {
  readonly #host: RecordHost;
  readonly #isEnded: () => boolean;
  #meta: GroupMeta;

  constructor(meta: GroupMeta, host: RecordHost, isEnded: () => boolean) {
    this.#meta = meta;
    this.#host = host;
    this.#isEnded = isEnded;
  }

  /** With all changes, durable or not. */
  get meta(): GroupMeta {
    return this.#meta;
  }

  /** Whether the hard state promises what the record does not hold yet. */
  isPromise({ term, vote }: HardState): boolean {
    const { hardState: saved } = this.#meta;
    return term !== saved.term || vote !== saved.vote;
  }

  /** `done` runs when the changes are durable; not for want of space, but with any other error. */
  save(changes: Partial<GroupMeta>, done: SaveDone): void {
    this.#meta = { ...this.#meta, ...changes };
    this.#write(done);
  }

  #write(done: SaveDone): void {
    this.#host.metas.save(this.#meta, (error) => {
      if (!isCodedError(error, "DISK_FULL")) done(error);
      else
        this.#host.later(() => {
          if (!this.#isEnded()) this.#write(done);
        });
    });
  }
}
