// `flagstone doctor`: looks at the machine a node runs on, with advice. Works on a data directory that
// nobody has open as well. Facts name no client, topic, address or secret: they may be sent to others.

import { readFileSync } from "node:fs";
import { arch, availableParallelism, freemem, platform, release, totalmem } from "node:os";
import type { Check, Doctor } from "../../admin/index.ts";
import {
  type Clock,
  type Disk,
  type DiskFile,
  describeSize,
  isCodedError,
  joinPath,
  nodeDisk,
  syncFully,
  writeFully,
} from "../../base/index.ts";
import type { BoundListener } from "../assemble.ts";
import { ballastName } from "../ballast.ts";
import type { Settings } from "../config/keys.ts";
import { isLoopback } from "../config/security-rules.ts";
import { dataFormat } from "../data-dir.ts";
import { version } from "../version.ts";
import { certificateCheck } from "./certificates.ts";
import { portCheck } from "./doctor-ports.ts";

export type Patient = {
  readonly dir: string;
  readonly disk: Disk;
  readonly clock: Clock;
  readonly settings: Settings;
  /** Checks of the running node; none of one that is not. */
  readonly checks: () => Promise<readonly Check[]>;
  /** Where the running node listens; undefined of one that is not: then the ports have to be free. */
  readonly listeners: readonly BoundListener[] | undefined;
};

type Advice = Doctor["checks"][number];

/** Of a directory that this process has not opened. */
export function examineDirectory(settings: Settings, clock: Clock): Promise<Doctor> {
  const checks = async (): Promise<readonly Check[]> => [];
  const dir = settings.data.dir;
  return examine({ dir, disk: nodeDisk, clock, settings, checks, listeners: undefined });
}

export async function examine(patient: Patient): Promise<Doctor> {
  const sync = await syncTimes(patient);
  const times = "fault" in sync ? undefined : sync;
  const checks: Advice[] = [
    ...(await patient.checks()),
    descriptorCheck(patient.settings),
    syncCheck(sync),
    listenerCheck(patient.settings),
    await portCheck(patient),
    nodeVersionCheck(),
    await ballastCheck(patient),
    await certificateCheck(patient.settings, patient.clock.wallUs() / 1000),
  ];
  const space = await patient.disk.space(patient.dir);
  return {
    version,
    checks,
    facts: {
      dataFormat,
      node: process.versions.node,
      platform: `${platform()} ${release()} ${arch()}`,
      cpus: availableParallelism(),
      memoryTotalBytes: totalmem(),
      memoryFreeBytes: freemem(),
      descriptorsMax: descriptorsMax() ?? "unknown",
      threads: process.env.UV_THREADPOOL_SIZE ?? "4",
      fileSystem: space.type ?? "unknown",
      freeBytes: space.freeBytes,
      totalBytes: space.totalBytes,
      syncMsMedian: round(times?.median ?? -1),
      syncMsP99: round(times?.p99 ?? -1),
    },
  };
}

// ---------------------------------------------------------------- descriptors

/** Files, slabs and the like, beside connections. */
const descriptorsSpare = 1000;

function descriptorsMax(): number | undefined {
  try {
    const limits = readFileSync("/proc/self/limits", "utf8");
    const soft = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    // Not on this system.
    return undefined;
  }
}

function descriptorCheck(settings: Settings): Advice {
  const name = "descriptors";
  const max = descriptorsMax();
  const wanted = settings.mqtt.connectionsMax + descriptorsSpare;
  if (max === undefined) return { name, state: "ok", message: "the limit is not known here" };
  const message = `${max} may be open; mqtt.connectionsMax and files want ${wanted}`;
  if (max >= wanted) return { name, state: "ok", message };
  return {
    name,
    state: "warning",
    message,
    help: "Raise the limit (ulimit -n, LimitNOFILE=) or lower mqtt.connectionsMax.",
  };
}

// ---------------------------------------------------------------- syncs

const syncProbes = 50;
const syncBytes = 4096;
const syncMsSlow = 20;
const probeName = "doctor.tmp";

type SyncTimes = { readonly median: number; readonly p99: number };
/** The code of what keeps it from writing. */
type SyncFault = { readonly fault: string };

async function syncTimes({ dir, disk, clock }: Patient): Promise<SyncTimes | SyncFault> {
  const path = joinPath(dir, probeName);
  try {
    await disk.remove(path);
    const file = await disk.open(path, "create");
    try {
      return await timeSyncs(file, clock);
    } finally {
      await file.close();
      await disk.remove(path);
    }
  } catch (error) {
    if (!isCodedError(error)) throw error;
    return { fault: error.code };
  }
}

async function timeSyncs(file: DiskFile, clock: Clock): Promise<SyncTimes> {
  const bytes = Buffer.alloc(syncBytes, 1);
  const times: number[] = [];
  for (let at = 0; at < syncProbes; at++) {
    const startMs = clock.elapsedMs();
    await writeFully(file, bytes, 0);
    await syncFully(file);
    times.push(clock.elapsedMs() - startMs);
  }
  times.sort((a, b) => a - b);
  const part = (share: number): number => times[Math.floor((times.length - 1) * share)] ?? 0;
  return { median: part(0.5), p99: part(0.99) };
}

/** A full volume passes; a disk that fails does not, and no node runs on it. */
function syncCheck(sync: SyncTimes | SyncFault): Advice {
  const name = "sync";
  if ("fault" in sync) {
    const message = `could not write to the data directory (${sync.fault})`;
    const help = `Acks need it. \`flagstone explain ${sync.fault}\` says more.`;
    return { name, state: sync.fault === "DISK_FULL" ? "warning" : "failed", message, help };
  }
  const message = `fdatasync takes ${round(sync.median)} ms, ${round(sync.p99)} ms at the 99th percentile`;
  if (sync.p99 <= syncMsSlow) return { name, state: "ok", message };
  const help = "Every ack waits for one. Use a faster disk, or one with a protected write cache.";
  return { name, state: "warning", message, help };
}

// ---------------------------------------------------------------- the rest

function listenerCheck({ listeners, admin }: Settings): Advice {
  const open = Object.entries(listeners).filter(([, { host }]) => !isLoopback(host));
  const names = open.map(([name]) => `listeners.${name}`);
  if (admin.enabled && !isLoopback(admin.host)) names.push("admin");
  if (names.length === 0) {
    return { name: "exposure", state: "ok", message: "only this machine reaches the listeners" };
  }
  return {
    name: "exposure",
    state: "warning",
    message: `other machines reach ${names.join(", ")}`,
    help: "See that clients are authenticated and that the way there is encrypted.",
  };
}

const nodeMajorMin = 20;

function nodeVersionCheck(): Advice {
  const major = Number(process.versions.node.split(".")[0]);
  const message = `Flagstone ${version} on Node.js ${process.versions.node}`;
  return { name: "versions", state: major >= nodeMajorMin ? "ok" : "failed", message };
}

async function ballastCheck({ dir, disk, settings }: Patient): Promise<Advice> {
  const name = "ballast";
  if (settings.data.ballastBytes === 0) return { name, state: "ok", message: "none is wanted" };
  if (await disk.exists(joinPath(dir, ballastName))) {
    return { name, state: "ok", message: `${describeSize(settings.data.ballastBytes)} at most` };
  }
  return {
    name,
    state: "warning",
    message: "none is there: the next full volume may keep the node from starting",
    help: "It is made by a running node when the volume has room.",
  };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
