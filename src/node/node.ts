// The composition root: settings and components in, a running node out. Several nodes may run in
// one process; nothing here is global, touches signals or prints.
//
// Order: data directory (checked and locked), then what `assemble` builds on it. Closing goes the
// other way and gives the lock back last, also when the start fails half way.

import { Closer, type CodedError, type Logger, toError } from "../base/index.ts";
import type { Store } from "../store/index.ts";
import type { AdminAddress, Operated, OperatorPlace } from "./admin/operator.ts";
import type {
  Assemble,
  AssembleContext,
  Assembled,
  BoundListener,
  Components,
  SecurityFace,
} from "./assemble.ts";
import { createBallast, isFullError } from "./ballast.ts";
import type { Settings } from "./config/keys.ts";
import { type DataDir, dataDirFull, openDataDir } from "./data-dir.ts";
import type { InsideFace } from "./embed/inside.ts";
import { nodeErrors } from "./errors.ts";
import { closeAfterFailure } from "./failed-start.ts";

export type RunningNode = {
  readonly settings: Settings;
  /** Bound addresses; a port of 0 is replaced by the one that was given. */
  readonly listeners: readonly BoundListener[];
  /** What the node stores, for those who embed it. It belongs to the node. */
  readonly store: Store;
  /** Users, keys and rules; `reload` reads their files again. */
  readonly security: SecurityFace;
  /** The HTTP interface, where there is one; `firstKey` when this start made the first API key. */
  readonly admin: AdminAddress | undefined;
  /** What the program that the node runs in can do with it. */
  readonly inside: InsideFace;
  /** Which member of which cluster it is. A store node has neither `security` nor `inside`. */
  readonly member: string | undefined;
  readonly dataDir: Omit<DataDir, "close">;
  /** From the call of `composeNode` until everything accepts. */
  readonly readyMs: number;
  /**
   * Rejects with the first error after which the node acknowledges nothing more (NODE_FAILED); never
   * resolves. Whoever started the node closes it then. A program that does not look at it is not
   * ended by it.
   */
  readonly failed: Promise<never>;
  /**
   * The machine in memory on which it ran has died: answers the program's calls with `error`, gives
   * the address of the HTTP interface back, and writes nothing. `close` is not called any more.
   */
  abandon(error: Error): Promise<void>;
  /**
   * Lets clients go, flushes and closes. Once; later calls get the same promise. Rejects, after all
   * has been tried, with what did not close well.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** @throws NODE_* with a sentence for the operator, or what a room above refused to start with. */
export async function composeNode(
  settings: Settings,
  components: Components,
  assemble: Assemble,
): Promise<RunningNode> {
  const { clock, logger } = components;
  const startedMs = clock.elapsedMs();
  const closer = new Closer();
  const failure = createFailure(logger);
  try {
    const use = settings.cluster.name === "" ? "local" : "member";
    const dataDir = closer.own(await openDataDir(settings.data.dir, components, use));
    const operated = await openOperator({ settings, dataDir, components }, closer);
    const ballast = closer.own(createBallast(dataDir.path, settings.data.ballastBytes, components));
    const assembled = closer.own(
      await assembleWithRoom(
        {
          ...{ settings, dataDir, components },
          fail: (error) => {
            operated?.failed();
            failure.fail(error);
          },
          began: (phase) => operated?.began(phase),
          spendBallast: () => ballast.spend(),
        },
        assemble,
      ),
    );
    ballast.start();
    const { listeners, parts, security } = assembled;
    const readyMs = clock.elapsedMs() - startedMs;
    const certificates = () => security?.certificates.list() ?? [];
    const secured = security === undefined ? {} : { security };
    operated?.ready({ ...parts, ...secured, listeners, readyMs, certificates });
    closer.defer(() => operated?.drain());
    let closed: Promise<void> | undefined;
    const close = (): Promise<void> => {
      closed ??= keepAlive(closer.close());
      return closed;
    };
    logger.debug("node.ready", { siteId: dataDir.siteId, readyMs: Math.round(readyMs) });
    return {
      ...{ settings, listeners, dataDir, readyMs },
      store: parts.store,
      admin: operated?.address,
      member: parts.member?.label,
      get inside() {
        return served(parts.inside);
      },
      get security() {
        return served(security);
      },
      failed: failure.promise,
      abandon: async (error) => {
        parts.inside?.abandon(error);
        await operated?.abandon();
      },
      close,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await closeAfterFailure(closer, logger);
    throw error;
  }
}

/** @throws NODE_STORE_ONLY. */
function served<T>(part: T | undefined): T {
  if (part === undefined) throw nodeErrors.storeOnly();
  return part;
}

/** The HTTP interface is loaded only where there is to be one: it is a fifth of all modules. */
async function openOperator(place: OperatorPlace, closer: Closer): Promise<Operated | undefined> {
  if (!place.settings.admin.enabled) return undefined;
  const operator = await import("./admin/operator.ts");
  return operator.openOperator(place, closer);
}

async function assembleWithRoom(context: AssembleContext, assemble: Assemble): Promise<Assembled> {
  try {
    return await assemble(context);
  } catch (error) {
    const { dataDir, components } = context;
    throw isFullError(error)
      ? await dataDirFull(dataDir.path, components.disk, toError(error))
      : error;
  }
}

/**
 * Timers of a node keep no process alive; its listeners do. When they are gone a close may still wait
 * for something, and the program for the close.
 */
function keepAlive(work: Promise<void>): Promise<void> {
  const timer = setInterval(() => undefined, longMs);
  return work.finally(() => clearInterval(timer));
}

const longMs = 1_000_000;

type Failure = {
  readonly promise: Promise<never>;
  readonly fail: (error: CodedError) => void;
};

function createFailure(logger: Logger): Failure {
  let reject: (error: CodedError) => void = () => undefined;
  let hasFailed = false;
  const promise = new Promise<never>((_resolve, rejected) => {
    reject = rejected;
  });
  promise.catch(() => undefined); // it is for those who look
  return {
    promise,
    fail: (error) => {
      if (hasFailed) return;
      hasFailed = true;
      logger.error("node.failed", { error });
      reject(nodeErrors.failed({ reason: error.message }, error));
    },
  };
}
