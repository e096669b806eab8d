// Crash images of a broker: a run under load is recorded, then the broker is started on folders as
// power cuts at drawn moments would have left them. What had been acked to a publisher before the
// cut must come out of every image.

import { rmSync } from "node:fs";
import { join } from "node:path";
import type { BrokerProcess } from "../support/broker-process.ts";
import { DurableClient } from "../support/durable-client.ts";
import { DeliveryOracle, formatReport } from "../support/oracle.ts";
import { createHistory, type History } from "./history.ts";
import { buildImage, type NamesModel, type PowerCut, writeImage } from "./image-builder.ts";
import { drawPowerCut, formatPowerCut } from "./images.ts";
import { cutMomentNs, type Operation, readRecord } from "./record-reader.ts";
import type { Recording } from "./recorder.ts";
import { createTraffic, openTraffic, startLoad, type Traffic } from "./traffic.ts";

export type RecordedRun = {
  readonly operations: readonly Operation[];
  readonly history: History;
  readonly oracle: DeliveryOracle;
  readonly traffic: Traffic;
  /** The first operation after all sessions were made: cuts before it owe nothing. */
  readonly openedAt: number;
};

/** Runs load against a broker that was started under the recorder, then kills it. */
export async function recordRun(
  recording: Recording,
  start: (env: Readonly<Record<string, string>>) => Promise<BrokerProcess>,
  acked: number,
): Promise<RecordedRun> {
  const oracle = new DeliveryOracle();
  const traffic = createTraffic(oracle);
  const broker = await start(recording.env);
  try {
    await openTraffic(traffic, broker.port);
    const openedNs = process.hrtime.bigint();
    const load = startLoad(traffic, 1);
    await load.untilAcked(acked);
    await load.finish();
    await broker.kill();
    const operations = readRecord(recording.recordPath);
    const history = createHistory(operations, recording.root);
    const openedAt = operations.findIndex(({ stampNs }) => stampNs > openedNs);
    return { operations, history, oracle, traffic, openedAt };
  } finally {
    for (const client of traffic.publishers) await client.end();
    for (const { client } of traffic.subscribers) await client.end();
    await broker.kill();
  }
}

export type ImageOptions = {
  readonly run: RecordedRun;
  readonly count: number;
  readonly seed: number | string;
  readonly scratch: string;
  readonly namesModel: (folder: string) => NamesModel;
  readonly start: (dataDir: string) => Promise<BrokerProcess>;
  readonly drainedWithinMs?: number;
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
    const withinMs = options.drainedWithinMs ?? 5000;
    await waitQuiet(oracle, [...names], withinMs, owedBeforeNs);
    const report = oracle.check(owedBeforeNs);
    return report.faults.length === 0 ? undefined : `${formatReport(report)}\n${broker.output()}`;
  } catch (error) {
    return `${String(error)}\n${broker.output()}`;
  } finally {
    for (const client of clients) await client.end();
    await broker.kill();
  }
}

/** Waits until all that is owed has come, or the time is over: the oracle then says what is missing. */
async function waitQuiet(
  oracle: DeliveryOracle,
  names: readonly string[],
  withinMs: number,
  owedBeforeNs: bigint,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  const isOwed = () => names.some((name) => oracle.missing(name, owedBeforeNs).length > 0);
  while (isOwed() && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
