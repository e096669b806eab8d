// What this version's nodes are assembled of, bottom up: write-ahead log, store, sessions, broker,
// listeners. Nothing listens before the log is replayed and all durable filters are loaded.
//
// The way down: listeners, clients (told 0x8B), sessions, a last checkpoint, store, log. A checkpoint
// that fails there costs nothing but replay at the next start. The first failure of log or store
// is the node's.

import {
  type Clock,
  Closer,
  type CodedError,
  createHistogram,
  diskErrors,
  isCodedError,
  type Logger,
  sleep,
  toError,
} from "../base/index.ts";
import { openLog } from "../log/index.ts";
import { type LocalStore, openStore } from "../store/index.ts";
import type { Assemble, AssembleContext, Assembled } from "./assemble.ts";
import { nodeErrors } from "./errors.ts";
import { closeAfterFailure } from "./failed-start.ts";
import { dataPaths, logSettings, storeSettings } from "./room-settings.ts";
import { prepareServing } from "./serving.ts";

export const assembleNode: Assemble = async (context) => {
  const closer = new Closer();
  try {
    return await assembleRooms(context, closer);
  } catch (error) {
    await closeAfterFailure(closer, context.components.logger);
    throw error;
  }
};

async function assembleRooms(context: AssembleContext, closer: Closer): Promise<Assembled> {
  const { settings, dataDir, components } = context;
  const { clock, random, logger, disk, kv, phase } = components;
  const paths = dataPaths(dataDir.path);
  let isFailed = false;
  const onFailure = (error: Error): void => {
    isFailed = true;
    context.fail(codedError(error));
  };
  const syncTimes = createHistogram(syncBoundsMs);
  const log = closer.own(
    await openLog(
      logSettings(settings, dataDir.space),
      {
        ...{ disk, clock, random, logger, syncTimes, onFailure },
        onFull: (full) => full && context.spendBallast(),
      },
      paths.log,
    ),
  );
  // Not even a start gets by without writing: claims, epochs. To wait here would look like a hang.
  if (log.full) throw diskErrors.full({ path: paths.log });
  context.began("opening the store");
  const hooks = phase === undefined ? {} : { phase };
  const store = closer.own(
    await openStore(storeSettings(settings, paths), {
      ...{ disk, kv, log, clock, logger, onFailure },
      ...hooks,
    }),
  );
  // Closed before the store: everything taken by then has come to rest.
  closer.defer(() => (isFailed ? undefined : lastCheckpoint(store, clock, logger)));
  const serving = await prepareServing(context, closer, { store });
  context.began("replaying the log");
  await store.start();
  const { parts, ...served } = await serving.begin();
  return { ...served, parts: { ...parts, log, store, syncTimes }, close: () => closer.close() };
}

/** From a cache that lies to a disk that is dying. */
export const syncBoundsMs = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500];

export function codedError(error: Error): CodedError {
  return isCodedError(error) ? error : nodeErrors.failed({ reason: error.message }, error);
}

/** On a full volume it would wait for space; closing the store ends it. */
const lastCheckpointMsMax = 10_000;

export async function lastCheckpoint(
  store: LocalStore,
  clock: Clock,
  logger: Logger,
): Promise<void> {
  try {
    const taken = store.checkpoint().then(() => true);
    const isLate = sleep(clock, lastCheckpointMsMax).then(() => false);
    if (await Promise.race([taken, isLate])) return;
    taken.catch(() => undefined); // told below
    logger.warn("node.last_checkpoint_left", { waitedMs: lastCheckpointMsMax });
  } catch (error) {
    logger.warn("node.last_checkpoint_failed", { error: toError(error) });
  }
}
