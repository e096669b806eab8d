// Crash images of a broker: a run under load is recorded, then the broker is started on folders as
// power cuts at drawn moments would have left them. What had been acked to a publisher before the
// cut must come out of every image.

import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { BrokerProcess } from "../support/broker-process.ts";
import { DurableClient } from "../support/durable-client.ts";
import { DeliveryOracle, formatReport } from "../support/oracle.ts";
import { createHistory, type History } from "./history.ts";
import { buildImage, type NamesModel, type PowerCut, writeImage } from "./image-builder.ts";
import { drawPowerCut, formatPowerCut } from "./images.ts";
import { cutMomentNs, type Operation, readRecord } from "./record-reader.ts";
import type { Recording } from "./recorder.ts";
import {
  createTraffic,
  openTraffic,
  reconnectTraffic,
  startLoad,
  type Traffic,
  waitDelivered,
} from "./traffic.ts";

export type RecordedRun = {
  readonly operations: readonly Operation[];
  readonly history: History;
  readonly oracle: DeliveryOracle;
  readonly traffic: Traffic;
  /** The first operation after all sessions were made: cuts before it owe nothing. */
  readonly openedAt: number;
};

export type RecordOptions = {
  readonly recording: Recording;
  readonly start: (env: Readonly<Record<string, string>>) => Promise<BrokerProcess>;
  readonly seed: number | string;
  readonly acked: number;
  /** Called under load, each time that another quarter has been acked. */
  readonly stir?: (broker: BrokerProcess) => void;
  /** Called when the load has ended. */
  readonly settle?: (broker: BrokerProcess) => Promise<void>;
  /**
   * An earlier life that is not recorded: so many are acked in it, then it ends with kill -9. The
   * record begins with the recovery from it.
   */
  readonly before?: { readonly acked: number; readonly copyTo: string };
};

/** Runs load against a broker that was started under the recorder, then kills it. */
export async function recordRun(options: RecordOptions): Promise<RecordedRun> {
  const { recording, before, seed } = options;
  const oracle = new DeliveryOracle();
  const traffic = createTraffic(oracle);
  let broker = await options.start(before === undefined ? recording.env : {});
  try {
    await openTraffic(traffic, broker.port);
    const openedNs = process.hrtime.bigint();
    if (before !== undefined) {
      await publish(traffic, { ...options, broker, seed: `${seed}/before`, acked: before.acked });
      await broker.kill();
      cpSync(recording.root, before.copyTo, { recursive: true });
      broker = await options.start(recording.env);
      await reconnectTraffic(traffic, broker.port);
    }
    await publish(traffic, { ...options, broker });
    await broker.kill();
    const operations = readRecord(recording.recordPath);
    const history = createHistory(operations, recording.root, before?.copyTo);
    const openedAt = operations.findIndex(({ stampNs }) => stampNs > openedNs);
    return { operations, history, oracle, traffic, openedAt };
  } finally {
    for (const client of traffic.publishers) await client.end();
    for (const { client } of traffic.subscribers) await client.end();
    await broker.kill();
  }
}

async function publish(
  traffic: Traffic,
  options: Pick<RecordOptions, "acked" | "seed" | "stir" | "settle"> & {
    readonly broker: BrokerProcess;
  },
): Promise<void> {
  const load = startLoad(traffic, options.seed);
  for (let quarter = 1; quarter <= 4; quarter++) {
    await load.untilAcked((options.acked * quarter) / 4);
    if (quarter < 4) options.stir?.(options.broker);
  }
  await load.finish();
  await options.settle?.(options.broker);
}

export type ImageOptions = {
  readonly run: RecordedRun;
  readonly count: number;
  readonly seed: number | string;
  readonly scratch: string;
  readonly namesModel: (folder: string) => NamesModel;
  readonly start: (dataDir: string) => Promise<BrokerProcess>;
  /** What is owed is missing when nothing of it has come for so long. */
  readonly stillMs?: number;
  /** Stops when so many images failed. Default: goes through all. */
  readonly failuresMax?: number;
};

/** One text per image that lost something or did not start. */
export async function checkImages(options: ImageOptions): Promise<string[]> {
  const { run, count, seed, scratch } = options;
  const failures: string[] = [];
  const failuresMax = options.failuresMax ?? count;
  for (let number = 0; number < count && failures.length < failuresMax; number++) {
    const cut = drawPowerCut(run.operations, `${seed}/${number}`, options.namesModel, run.openedAt);
    const folder = join(scratch, `image-${number}`);
    writeImage(buildImage(run.history, cut), folder);
    const failure = await checkImage(options, folder, cut);
    if (failure === undefined) rmSync(folder, { recursive: true });
    else {
      const said = formatPowerCut(cut, run.operations);
      failures.push(`image ${number} of seed ${seed}: ${said}\n${failure}`);
    }
  }
  return failures;
}

async function checkImage(
  options: ImageOptions,
  folder: string,
  powerCut: PowerCut,
): Promise<string | undefined> {
  const { run } = options;
  const owedBeforeNs = cutMomentNs(run.operations, powerCut.cut);
  const oracle = run.oracle.withoutReceipts();
  const offline = run.traffic.subscribers.filter(({ life }) => life === "offline");
  const names = new Set(offline.map(({ client }) => client.clientId));
  for (const { client } of run.traffic.subscribers) {
    if (!names.has(client.clientId)) oracle.removeSession(client.clientId);
  }
  let broker: BrokerProcess;
  try {
    broker = await options.start(folder);
  } catch (error) {
    return String(error);
  }
  const clients = [...names].map((clientId) => new DurableClient({ clientId, oracle }));
  try {
    for (const client of clients) {
      if (!(await client.connect(broker.port))) return `${client.clientId}: its session is gone`;
    }
    const stillMs = options.stillMs ?? 5000;
    const missing = await waitDelivered(oracle, [...names], stillMs, owedBeforeNs);
    const report = oracle.check(owedBeforeNs);
    if (report.faults.length === 0) return undefined;
    // Lost, or held back by a delivery that stands still: a new connection shows which.
    for (const client of clients) {
      await client.end();
      await client.connect(broker.port);
    }
    const lost = await waitDelivered(oracle, [...names], stillMs, owedBeforeNs);
    const late = `${missing.length - lost.length} of ${missing.length} came on a new connection`;
    return [formatReport(report), late, broker.output()].join("\n");
  } catch (error) {
    return `${String(error)}\n${broker.output()}`;
  } finally {
    for (const client of clients) await client.end();
    await broker.kill();
  }
}
