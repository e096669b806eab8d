// The named checks of `/readyz`: each a state and a sentence. `failed` means that the node should get
// no new clients; `warning` that somebody should look.

import type { Check } from "../../admin/index.ts";
import { describeSize } from "../../base/index.ts";
import type { Viewed } from "./view.ts";

const mib = 2 ** 20;
/** Free room at which to look, when also little of the volume is left. */
const freeBytesLow = 2 * 1024 * mib;
const freeShareLow = 0.1;
const alarmsShownMax = 5;

export async function nodeChecks(view: Viewed): Promise<Check[]> {
  const { ready } = view;
  if (ready === undefined) {
    return [{ name: "start", state: "failed", message: `not yet: ${view.progress()}` }];
  }
  const { log, store, listeners, broker, member } = ready;
  return [
    ...(member === undefined ? [] : [clusterCheck(member)]),
    ...(member !== undefined && broker === undefined ? [] : [listenerCheck(listeners)]),
    await diskCheck(view),
    logCheck(log),
    storeCheck(store.refusal),
    clockCheck(view),
    alarmCheck(view),
  ];
}

function listenerCheck(listeners: NonNullable<Viewed["ready"]>["listeners"]): Check {
  return {
    name: "listeners",
    state: listeners.length > 0 ? "ok" : "warning",
    message: listeners.map(({ name, port }) => `${name} on port ${port}`).join(", ") || "none",
  };
}

function clusterCheck(member: NonNullable<NonNullable<Viewed["ready"]>["member"]>): Check {
  const groups = member.leaderless();
  if (groups.length === 0) return { name: "cluster", state: "ok", message: member.label };
  const message = `${member.label}: no leader of groups ${groups.join(", ")}, nothing is acked there`;
  return { name: "cluster", state: "failed", message };
}

async function diskCheck(view: Viewed): Promise<Check> {
  const { freeBytes, totalBytes, type } = await view.disk.space(view.dataDir.path);
  const isLow = freeBytes < freeBytesLow && freeBytes < totalBytes * freeShareLow;
  const free = `${describeSize(freeBytes)} free of ${describeSize(totalBytes)}`;
  if (type === "tmpfs" || type === "ramfs") {
    return { name: "disk", state: "warning", message: `${free}, in memory: lost at a reboot` };
  }
  return { name: "disk", state: isLow ? "warning" : "ok", message: free };
}

type Log = NonNullable<Viewed["ready"]>["log"];

function logCheck(log: Log): Check {
  const name = "log";
  if (log.failure !== undefined) return { name, state: "failed", message: log.failure.message };
  if (log.full) {
    return { name, state: "warning", message: "no room on the volume: publishes wait, then fail" };
  }
  if (log.damage.length > 0) {
    const message = `${log.damage.length} damaged places were set aside at the start`;
    return { name, state: "warning", message };
  }
  return { name, state: "ok", message: `${describeSize(log.sizeBytes)}, writes are synced` };
}

function storeCheck(refusal: Error | undefined): Check {
  return refusal === undefined
    ? { name: "store", state: "ok", message: "takes messages" }
    : { name: "store", state: "warning", message: refusal.message };
}

/** 2024: a clock before it was never set. */
const wallUsMin = 1_704_067_200_000_000;

function clockCheck({ clock }: Viewed): Check {
  const wallUs = clock.wallUs();
  return wallUs < wallUsMin
    ? { name: "clock", state: "warning", message: "the wall clock is years behind: set it (NTP)" }
    : { name: "clock", state: "ok", message: new Date(wallUs / 1000).toISOString() };
}

function alarmCheck(view: Viewed): Check {
  const alarms = view.alarms();
  if (alarms.length === 0) return { name: "alarms", state: "ok", message: "none" };
  const shown = alarms.slice(0, alarmsShownMax).map((alarm) => `${alarm.name} (${alarm.subject})`);
  const rest = alarms.length > shown.length ? `, ${alarms.length - shown.length} more` : "";
  return { name: "alarms", state: "warning", message: `${shown.join(", ")}${rest}` };
}
