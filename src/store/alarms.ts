// What an operator has to know and to act on, as a list made from the state of groups, volume and
// shards. An alarm is there for as long as its cause.

import { describeSize } from "../base/index.ts";
import type { Databases } from "./databases.ts";
import type { Groups } from "./groups.ts";
import type { Alarm } from "./operator-api.ts";

export function alarmsOf(groups: Groups, databases: Databases): Alarm[] {
  return [...groupAlarms(groups), ...volumeAlarms(groups), ...shardAlarms(databases)];
}

function groupAlarms(groups: Groups): Alarm[] {
  return groups.list.flatMap((group): Alarm[] => {
    if (group.state === "open") return [];
    const isFull = group.state === "full";
    const used = `${describeSize(group.physicalBytes)} of ${describeSize(group.quotaBytes)}`;
    return [
      {
        name: isFull ? "quota_full" : "quota_near",
        subject: `group ${group.name}`,
        severity: isFull ? "critical" : "warning",
        sinceMs: group.changedAtMs,
        message: isFull
          ? `the quota is used up (${used}): new messages are refused`
          : `the quota is nearly used up (${used}): what nobody needs is being dropped`,
        help: "Let sessions read what waits for them, drop old generations, or raise the quota.",
      },
    ];
  });
}

function volumeAlarms(groups: Groups): Alarm[] {
  const space = groups.keeper?.space;
  if (space === undefined || space.state === "roomy") return [];
  return [
    {
      name: `volume_${space.state}`,
      subject: "volume",
      severity: "critical",
      sinceMs: space.sinceMs,
      message: `${describeSize(space.freeBytes)} are free: new messages are refused`,
      help: "Free space on the volume of the data directory; writing resumes by itself.",
    },
  ];
}

function shardAlarms(databases: Databases): Alarm[] {
  return databases.list.flatMap(({ record, shards }) =>
    shards.flatMap(({ shard, log }): Alarm[] => {
      const damaged = [
        ...shard.recoveries.map(({ fromUs }) => fromUs),
        ...(log?.generations.missing ?? [])
          .filter(({ reason }) => reason === "damaged")
          .map(({ afterUs }) => afterUs),
      ];
      const sinceUs = Math.max(...damaged);
      if (damaged.length === 0) return [];
      return [
        {
          name: "data_damaged",
          subject: `shard ${shard.number} of ${record.name}`,
          severity: "warning",
          sinceMs: Math.round(sinceUs / 1_000),
          message: `${damaged.length} spans of messages could not be read and were set aside`,
          help: "Look into the quarantine folder and check the device; readers were told.",
        },
      ];
    }),
  );
}
