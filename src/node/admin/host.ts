// The node as its HTTP interface sees it, from before it is ready until after it has drained. What
// there is to see is handed in as it comes to be; nothing here changes the node.

import type {
  AdminHost,
  Check,
  ConfigChangeInfo,
  ConfigValue,
  Doctor,
  MetricSource,
  NodeState,
  RunningParts,
  StatusFacts,
} from "../../admin/index.ts";
import type { Clock, Disk, Histogram } from "../../base/index.ts";
import type { Alarm } from "../../store/index.ts";
import { durability, weakGroupsOf } from "../banner.ts";
import type { Settings } from "../config/keys.ts";
import type { DataDir } from "../data-dir.ts";
import { version } from "../version.ts";
import { certificateAlarms } from "./certificates.ts";
import { nodeChecks } from "./checks.ts";
import type { ConfigurationView } from "./configuration-view.ts";
import { examine } from "./doctor.ts";
import { LoopDelay } from "./loop-delay.ts";
import { metricSources } from "./metric-sources.ts";
import { RetentionWatch } from "./retention-watch.ts";
import { runningPartsOf } from "./running.ts";
import type { ReadyParts, Viewed } from "./view.ts";

export type NodeViewParts = {
  readonly settings: Settings;
  readonly dataDir: DataDir;
  readonly clock: Clock;
  readonly disk: Disk;
  readonly configuration: ConfigurationView | undefined;
};

export class NodeView implements AdminHost, Viewed {
  readonly settings: Settings;
  readonly dataDir: DataDir;
  readonly clock: Clock;
  readonly disk: Disk;
  readonly reload: AdminHost["reload"];
  readonly #configuration: ConfigurationView | undefined;
  readonly #loop = new LoopDelay();
  readonly #startedUs: number;
  #state: NodeState = "starting";
  #phase = "opening the log";
  #ready: ReadyParts | undefined;
  #running: RunningParts | undefined;
  #tasksActive: () => number = () => 0;
  #retention: RetentionWatch | undefined;
  /** Under way: whoever asks meanwhile gets the same, and the disk is timed once. */
  #examining: Promise<Doctor> | undefined;

  constructor(parts: NodeViewParts) {
    this.settings = parts.settings;
    this.dataDir = parts.dataDir;
    this.clock = parts.clock;
    this.disk = parts.disk;
    this.#configuration = parts.configuration;
    this.reload = parts.configuration && ((dryRun) => this.#reload(dryRun));
    this.#startedUs = parts.clock.wallUs();
  }

  /** How far the start is, for `/startupz`. */
  began(phase: string): void {
    this.#phase = phase;
  }

  becameReady(parts: ReadyParts): void {
    this.#ready = parts;
    this.#running = runningPartsOf({ ...parts, clock: this.clock });
    // Of sessions, which are of nodes by themselves.
    if (parts.broker !== undefined) this.#retention = new RetentionWatch(this.#running, this.clock);
    this.#state = "ready";
  }

  drains(): void {
    if (this.#state !== "failed") this.#state = "draining";
    this.#running = undefined;
    this.#retention?.close();
  }

  failed(): void {
    this.#retention?.close();
    this.#state = "failed";
    this.#running = undefined;
  }

  watchTasks(active: () => number): void {
    this.#tasksActive = active;
  }

  async close(): Promise<void> {
    this.#retention?.close();
    this.#loop.close();
  }

  get ready(): ReadyParts | undefined {
    return this.#ready;
  }

  get loopDelay(): Histogram {
    return this.#loop.histogram;
  }

  get syncTimes(): Histogram | undefined {
    return this.#ready?.syncTimes;
  }

  get activeTasks(): number {
    return this.#tasksActive();
  }

  state(): NodeState {
    return this.#state;
  }

  progress(): string {
    return this.#phase;
  }

  running(): RunningParts | undefined {
    return this.#running;
  }

  alarms(): readonly Alarm[] {
    const running = this.#running;
    const ready = this.#ready;
    if (running === undefined || ready === undefined) return [];
    const nowMs = this.clock.wallUs() / 1000;
    return [
      ...running.operator.alarms(),
      ...certificateAlarms(ready.certificates(), nowMs),
      ...(this.#retention?.alarms() ?? []),
      ...this.#reloadAlarms(),
    ];
  }

  #reloadAlarms(): Alarm[] {
    const refusal = this.#configuration?.refusal();
    if (refusal === undefined) return [];
    const { sinceMs, reason } = refusal;
    return [
      {
        ...{ name: "reload_refused", subject: "configuration", severity: "warning", sinceMs },
        message: `the last reload changed nothing: ${reason.split("\n")[0]}`,
        help: "Mend the files (`flagstone config check`) and reload; the next start would not come up.",
      },
    ];
  }

  checks(): Promise<readonly Check[]> {
    return nodeChecks(this);
  }

  doctor(): Promise<Doctor> {
    this.#examining ??= examine({
      dir: this.dataDir.path,
      disk: this.disk,
      clock: this.clock,
      settings: this.settings,
      checks: () => this.checks(),
      listeners: this.#ready?.listeners,
    }).finally(() => {
      this.#examining = undefined;
    });
    return this.#examining;
  }

  metrics(): readonly MetricSource[] {
    return metricSources(this);
  }

  configuration(): readonly ConfigValue[] {
    return this.#configuration?.values() ?? [];
  }

  async facts(): Promise<StatusFacts> {
    const { siteId, path } = this.dataDir;
    const space = await this.disk.space(path);
    const broker = this.#ready?.broker;
    const counters = broker?.counters;
    const sum = (names: ReadonlyArray<keyof NonNullable<typeof counters>>): number =>
      names.reduce((total, name) => total + (counters?.[name] ?? 0), 0);
    return {
      version,
      state: this.#state,
      siteId,
      pid: process.pid,
      startedUs: this.#startedUs,
      ...(this.#ready === undefined ? {} : { readyMs: Math.round(this.#ready.readyMs) }),
      listeners: (this.#ready?.listeners ?? []).map(({ name, host, port }) => ({
        name,
        host,
        port,
      })),
      dataDir: path,
      ...(space.type === undefined ? {} : { fileSystem: space.type }),
      freeBytes: space.freeBytes,
      totalBytes: space.totalBytes,
      clients: broker?.counts().connections ?? 0,
      sessions: broker?.sessions.counts().durable ?? 0,
      memoryBytes: process.memoryUsage.rss(),
      received: sum(["publishesQos0", "publishesQos1", "publishesQos2"]),
      delivered: sum(["deliveriesQos0", "deliveriesQos1", "deliveriesQos2"]),
      logBytes: this.#ready?.log.sizeBytes ?? 0,
      durability: durability(space.type, weakGroupsOf(this.settings.groups)),
    };
  }

  async #reload(dryRun: boolean): Promise<readonly ConfigChangeInfo[]> {
    return this.#configuration?.reload(dryRun) ?? [];
  }
}
