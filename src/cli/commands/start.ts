// `flagstone start`: the launcher. Reads the configuration, starts a node, prints the start-up lines
// with `ready ...` last, and runs until a signal or a failure. Logs go to standard error.

import type { CodedError } from "../../base/index.ts";
import {
  address,
  bannerLines,
  type Config,
  createLineWriter,
  createLogger,
  type NodeLogger,
  RunningConfiguration,
  type RunningNode,
  type Settings,
  type StopSignal,
  secretFilesOf,
  startNode,
  version,
  warnWhenOpen,
  watchSignals,
  weakGroupsOf,
} from "../../node/index.ts";
import type { Command, CommandInput, Io } from "../command.ts";
import { configOptions } from "../config-flags.ts";
import { configOf } from "../config-options.ts";
import { exitCodes } from "../exit-codes.ts";
import { reportError } from "../report.ts";
import { killPhase, type Phase, watchTestSignals } from "../test-hooks.ts";

export const start: Command = {
  name: "start",
  summary: "run a node",
  options: configOptions,
  examples: [
    "start --data ./data --port 1883",
    "start --config config/flagstone.yaml --set mqtt.publishWait=5s",
  ],
  run: async (input) => {
    const config = configOf(input);
    const phase = killPhase(input.io);
    const logger = loggerFor(config.settings, input.io);
    const read = (): Config => configOf(input);
    const apply = ({ logger: { level } }: Settings): void => logger.setLevel(level);
    const nowMs = (): number => Math.floor(input.io.clock.wallUs() / 1000);
    const configuration = new RunningConfiguration(config, { read, apply, logger, nowMs });
    for (const file of secretFilesOf(config)) await warnWhenOpen(file, "secret", logger);
    // Whoever may write there may put a link where the node wants a folder.
    await warnWhenOpen(config.settings.data.dir, "public", logger);
    try {
      const hooks = phase === undefined ? {} : { phase };
      return await runNode(config.settings, { logger, configuration, ...hooks }, input);
    } finally {
      logger.flush();
    }
  },
};

/** Lines reach standard error behind the caller's back; whoever ends the process may wait for them. */
type LauncherLogger = NodeLogger & { flushed(): Promise<void> };

async function runNode(
  settings: Settings,
  components: {
    readonly logger: LauncherLogger;
    readonly configuration: RunningConfiguration;
    readonly phase?: Phase;
  },
  { io }: CommandInput,
): Promise<number> {
  const { logger, configuration } = components;
  io.outliveReader();
  const stopAsked = stopRequested(io, logger, () => configuration.onSignal());
  const started = await Promise.race([startNode(settings, components), stopAsked]);
  if (typeof started === "string") return endStart(started, logger, io);
  const node = started;
  if (node.member === undefined) configuration.secureWith(() => node.security.reload());
  watchTestSignals(io, node.store, logger);
  io.out(`${bannerLines(factsOf(node, io)).join("\n")}\n`);
  const failed = node.failed.catch((error: CodedError) => error);
  const ended = await Promise.race([stopAsked, failed]);
  if (typeof ended === "string") {
    logger.info("node.stopping", { signal: ended });
    await node.close();
    logger.info("node.stopped");
    return exitCodes.ok;
  }
  return endFailed(node, ended, io);
}

/**
 * A start may wait for a slow disk or a long replay and cannot be called back half way. Ending the
 * process is safe: nothing is acked yet, and what is on disk survives a kill at any moment.
 */
async function endStart(signal: StopSignal, logger: LauncherLogger, io: Io): Promise<number> {
  logger.info("node.start_ended", { signal });
  await Promise.race([logger.flushed(), after(lastLinesMs, io)]);
  io.endBy(signal);
  return exitCodes.ok;
}

/** Resolves with the first SIGTERM or SIGINT; a second one ends the process at once. */
function stopRequested(io: Io, logger: NodeLogger, reload: () => void): Promise<StopSignal> {
  return new Promise((resolve) => {
    const endNow = (signal: StopSignal): void => {
      logger.flush();
      io.endBy(signal);
    };
    watchSignals({ stop: resolve, endNow, reload }, io.signals);
  });
}

/** A reader that does not take the last lines does not hold the end up. */
const lastLinesMs = 500;

const after = (delayMs: number, io: Io): Promise<void> =>
  new Promise((resolve) => {
    io.clock.schedule(delayMs, resolve);
  });

/** A clean stop may hang on the very volume that failed: it gets a few seconds. */
const failedCloseMs = 5000;

async function endFailed(node: RunningNode, error: CodedError, io: Io): Promise<number> {
  // What close() has to say about the broken volume adds nothing to the error that is reported.
  const closed = node.close().catch(() => undefined);
  await Promise.race([closed, after(failedCloseMs, io)]);
  return reportError(error, io);
}

function loggerFor(settings: Settings, io: Io): LauncherLogger {
  const { level, format } = settings.logger;
  const writer = createLineWriter(2);
  const chosen = format === "auto" ? (io.isTerminal ? "pretty" : "json") : format;
  const logger = createLogger({ level, format: chosen, write: writer.write });
  return {
    ...logger,
    flush: () => {
      logger.flush();
      writer.flush();
    },
    flushed: () => {
      logger.flush();
      return writer.flushed();
    },
  };
}

function factsOf(node: RunningNode, io: Io): Parameters<typeof bannerLines>[0] {
  const { settings, dataDir } = node;
  const { admin } = settings;
  return {
    version,
    listeners: node.listeners,
    member: node.member,
    admin: node.admin,
    adminTaken: isAdminMissing(node) ? address(admin.host, admin.port) : undefined,
    firstKey: node.admin?.firstKey,
    dataDir: settings.data.dir,
    freeBytes: dataDir.space.freeBytes,
    totalBytes: dataDir.space.totalBytes,
    fileSystem: dataDir.space.type,
    weakGroups: weakGroupsOf(settings.groups),
    command: io.command,
    readyMs: node.readyMs,
  };
}

function isAdminMissing({ settings, admin }: RunningNode): boolean {
  return settings.admin.enabled && admin === undefined;
}
