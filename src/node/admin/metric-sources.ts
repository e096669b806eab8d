// Every number of a node that `/metrics` shows. Counters come from the rooms as they are; what is not
// counted but looked up (depths, sizes, times) is a gauge here.

import type { MetricSource } from "../../admin/index.ts";
import { version } from "../version.ts";
import type { ReadyParts, Viewed } from "./view.ts";

type Gauge = Extract<MetricSource, { kind: "gauge" }>;

const gauge = (name: string, help: string, read: Gauge["read"]): MetricSource => ({
  kind: "gauge",
  name,
  help,
  read,
});

const states = ["starting", "ready", "draining", "failed"] as const;
const severities = ["warning", "critical"] as const;

export function metricSources(view: Viewed): MetricSource[] {
  const { ready } = view;
  return [...processSources(view), ...(ready === undefined ? [] : readySources(view, ready))];
}

function processSources(view: Viewed): MetricSource[] {
  const memory = (): NodeJS.MemoryUsage => process.memoryUsage();
  return [
    gauge("build_info", "1, with the version as a label", () => [
      { labels: { version, node: process.versions.node }, value: 1 },
    ]),
    gauge("node_state", "1 for the state the node is in", () =>
      states.map((state) => ({ labels: { state }, value: view.state() === state ? 1 : 0 })),
    ),
    gauge("process_resident_memory_bytes", "resident memory of the process", () => memory().rss),
    gauge("process_heap_used_bytes", "JavaScript heap in use", () => memory().heapUsed),
    gauge("process_external_memory_bytes", "memory of buffers", () => memory().external),
    gauge("process_uptime_seconds", "time since the process began", () => process.uptime()),
    gauge("process_cpu_seconds", "processor time used, by kind", () => {
      const { user, system } = process.cpuUsage();
      return [
        { labels: { kind: "user" }, value: user / 1e6 },
        { labels: { kind: "system" }, value: system / 1e6 },
      ];
    }),
    {
      kind: "histogram",
      name: "event_loop_delay_seconds",
      help: "by how much a timer of 20 ms came late",
      histogram: view.loopDelay,
    },
  ];
}

function readySources(view: Viewed, ready: ReadyParts): MetricSource[] {
  const { broker, log, store, syncTimes } = ready;
  return [
    ...(broker === undefined ? [] : brokerSources(broker)),
    ...optionalCounters("cluster", ready.member?.counters),
    { kind: "counters", room: "log", counters: log.counters },
    { kind: "counters", room: "store", counters: store.counters },
    ...Object.values(store.reading).flatMap((counters) => optionalCounters("store", counters)),
    {
      kind: "histogram",
      name: "log_sync_duration_seconds",
      help: "how long fdatasync of the log took",
      histogram: syncTimes,
    },
    gauge("log_pending_bytes", "bytes queued and not synced yet", () => log.pendingBytes),
    gauge("log_size_bytes", "bytes of all log files", () => log.sizeBytes),
    gauge("log_full", "1 while the log has no room to go on", () => (log.full ? 1 : 0)),
    gauge("log_gaps", "spans of records that were lost", () => log.gaps.length),
    gauge("store_refusing", "1 while new messages are refused", () =>
      store.refusal === undefined ? 0 : 1,
    ),
    gauge("store_readers", "readers of shards, by pool", () => {
      const { tail, behind } = store.pools();
      return [
        { labels: { pool: "realtime" }, value: tail },
        { labels: { pool: "catch_up" }, value: behind },
      ];
    }),
    gauge("store_readers_stuck", "readers without room for what waits, for a minute", () => {
      return store.pools().stuck;
    }),
    gauge("store_reader_lag_seconds", "how far the last reader is behind, in commit time", () => {
      return store.pools().lagUsMax / 1e6;
    }),
    gauge(
      "store_block_sharing_ratio",
      "part of block reads that another reader had paid for",
      () => store.blockCache.sharingRatio,
    ),
    gauge("alarms", "alarms now, by severity", () =>
      severities.map((severity) => ({
        labels: { severity },
        value: view.alarms().filter((alarm) => alarm.severity === severity).length,
      })),
    ),
    gauge("certificate_expiry_timestamp_seconds", "when a listener's certificate ends", () =>
      ready.certificates().map(({ listener, expiresMs }) => ({
        labels: { listener },
        value: expiresMs / 1000,
      })),
    ),
    gauge("tasks_active", "tasks running or paused", () => view.activeTasks),
    ...groupSources(view),
  ];
}

function brokerSources(broker: NonNullable<ReadyParts["broker"]>): MetricSource[] {
  return [
    { kind: "counters", room: "broker", counters: broker.counters },
    ...optionalCounters("session", (broker.sessions as { counters?: unknown }).counters),
    gauge("clients_connected", "connections now", () => broker.counts().connections),
    gauge("sessions_durable", "durable sessions", () => broker.sessions.counts().durable),
    gauge("live_filters", "filters served by direct fan-out", () => broker.counts().liveFilters),
  ];
}

function optionalCounters(room: string, counters: unknown): MetricSource[] {
  if (typeof counters !== "object" || counters === null) return [];
  return [{ kind: "counters", room, counters: counters as Record<string, number> }];
}

/** Groups are named in the configuration: as many labels as that has. */
function groupSources(view: Viewed): MetricSource[] {
  const groups = () => {
    try {
      return view.running()?.operator.groups() ?? [];
    } catch {
      // A store without groups has nothing to show here.
      return [];
    }
  };
  const each = (read: (group: ReturnType<typeof groups>[number]) => number) => () =>
    groups().map((group) => ({ labels: { group: group.name }, value: read(group) }));
  return [
    gauge(
      "group_quota_bytes",
      "quota of a group",
      each((group) => finite(group.quotaBytes)),
    ),
    gauge(
      "group_physical_bytes",
      "bytes of a group on disk",
      each((group) => group.physicalBytes),
    ),
    gauge(
      "group_write_buffer_bytes",
      "memory of a group not written to slabs yet",
      each((group) => group.writeBufferBytes),
    ),
  ];
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : 0;
}
