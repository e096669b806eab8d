// The parts that every session sends with, whether it outlives its connection or not: what goes out
// in a window, and the jobs that page retained messages.

import type { Ttv } from "../store/index.ts";
import type { SessionLink, Subscription } from "./api.ts";
import type { SessionContext } from "./context.ts";
import type { Choice } from "./core/choose.ts";
import { type IdSource, Outbound } from "./core/outbound.ts";
import { type JobHost, RetainedJobs } from "./retained-jobs.ts";

/** The session, as its parts see it. */
export type SendingHost = {
  readonly link: SessionLink;
  readonly durable: boolean;
  /** Nothing is sent any more. */
  isStopped(): boolean;
  /** Records have changed. `urgent`: sending waits for them. */
  changed(urgent: boolean): void;
};

export function createOutbound(
  context: SessionContext,
  host: SendingHost,
  ids: IdSource,
): Outbound {
  const { settings, counters } = context;
  const { link, durable } = host;
  return new Outbound({
    outlet: {
      publish: (message, delivery) => (host.isStopped() ? "full" : link.publish(message, delivery)),
      publishRun: (run, count, packetIds) =>
        !host.isStopped() && link.publishRun?.(run, count, packetIds) === true,
      pubrel: (packetId, reasonCode) => {
        if (!host.isStopped()) link.pubrel(packetId, reasonCode);
      },
      changed: (urgent) => host.changed(urgent),
      count: (event, times = 1) => {
        counters[event] += times;
      },
    },
    ids,
    countMax: Math.min(settings.inflightMax, link.receiveMaximum),
    bytesMax: settings.inflightBytesMax,
    durable,
  });
}

export type JobsOptions = {
  readonly subscription: (filter: string) => Subscription | undefined;
  readonly send: JobHost["sendRetained"];
  /** A page has become ready to be sent. */
  readonly ready: () => void;
};

export function createJobs(
  context: SessionContext,
  host: SendingHost,
  options: JobsOptions,
): RetainedJobs {
  const { retained, settings, clock, counters, logger } = context;
  return new RetainedJobs({
    retained,
    logger,
    counters,
    pageMax: settings.retainedPageMax,
    liveTopicsMax: settings.liveTopicsMax,
    durable: host.durable,
    nowUs: () => clock.wallUs(),
    retry: (task) => {
      clock.schedule(settings.retryDelayMs, task);
    },
    host: {
      subscription: options.subscription,
      sendRetained: options.send,
      ready: options.ready,
      changed: (urgent) => host.changed(urgent),
    },
  });
}

/** Straight from the publisher: what finds no room is dropped and counted, and the answer is false. */
export function sendQos0(
  { counters }: SessionContext,
  link: SessionLink,
  message: Ttv,
  choice: Choice,
): boolean {
  const result = link.publish(message, {
    qos: 0,
    dup: false,
    retain: choice.retain,
    packetId: 0,
    subscriptionIds: choice.identifiers,
  });
  if (result === "full") counters.qos0Dropped++;
  else if (result === "too_large") counters.tooLargeDropped++;
  else counters.delivered++;
  return result !== "full";
}
