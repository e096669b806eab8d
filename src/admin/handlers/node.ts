// What a node is and how it does: status, health, alarms, doctor, configuration.

import type { Clock } from "../../base/index.ts";
import type { Status } from "../contract.ts";
import { adminErrors } from "../errors.ts";
import { type Handlers, listOf } from "../handler-types.ts";
import type { AdminHost } from "../ports.ts";
import type { Tasks } from "../tasks.ts";

export type NodeHandlers = Handlers<
  "getStatus" | "getHealth" | "listAlarms" | "runDoctor" | "getConfig" | "reloadConfig"
>;

export function nodeHandlers(host: AdminHost, tasks: Tasks, clock: Clock): NodeHandlers {
  const rates = new Rates(clock);
  return {
    getStatus: () => statusOf(host, tasks, clock, rates),
    getHealth: async () => ({ state: host.state(), checks: [...(await host.checks())] }),
    listAlarms: () => listOf(host.alarms()),
    runDoctor: () => host.doctor(),
    getConfig: () => listOf(host.configuration()),
    reloadConfig: async ({ body: { dryRun } }) => {
      if (host.reload === undefined) throw adminErrors.reloadUnavailable({});
      return { dryRun, changes: [...(await host.reload(dryRun))] };
    },
  };
}

export async function statusOf(
  host: AdminHost,
  tasks: Pick<Tasks, "activeCount">,
  clock: Clock,
  rates: Rates,
): Promise<Status> {
  const facts = await host.facts();
  return {
    ...facts,
    uptimeMs: Math.round(Math.max(0, (clock.wallUs() - facts.startedUs) / 1000)),
    ...rates.of(facts),
    alarms: host.alarms().length,
    tasks: tasks.activeCount,
  };
}

type Sample = { readonly atMs: number; readonly received: number; readonly delivered: number };

const sampleMsMin = 1000;

/** Rates between looks that are at least a second apart, whoever looks. */
export class Rates {
  readonly #clock: Clock;
  #before: Sample | undefined;
  #rates = { receivedPerS: 0, deliveredPerS: 0 };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of({ received, delivered }: { readonly received: number; readonly delivered: number }) {
    const now = { atMs: this.#clock.elapsedMs(), received, delivered };
    const before = this.#before ?? now;
    const seconds = (now.atMs - before.atMs) / 1000;
    if (this.#before === undefined) this.#before = now;
    if (seconds * 1000 < sampleMsMin) return this.#rates;
    const per = (from: number, to: number): number =>
      Math.max(0, Math.round(((to - from) / seconds) * 10) / 10);
    this.#rates = {
      receivedPerS: per(before.received, received),
      deliveredPerS: per(before.delivered, delivered),
    };
    this.#before = now;
    return this.#rates;
  }
}
