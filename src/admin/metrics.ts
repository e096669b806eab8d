// `/metrics` for Prometheus: every counter of every room under one rule for names, those that say why
// something was refused or ended as one family with a bounded label, gauges and histograms beside
// them. The one home of prom-client, which writes the text; the numbers stay plain.
//
// Invariants: every counter is there exactly once; no label comes from outside (no client ids, topics
// or addresses); names carry their unit.

import { Registry } from "prom-client";
import { type Histogram, helpOf } from "../base/index.ts";

export type Sample = { readonly labels?: Readonly<Record<string, string>>; readonly value: number };

export type MetricSource =
  /** Counters of one room, as `createCounters` made them. */
  | {
      readonly kind: "counters";
      readonly room: string;
      readonly counters: Readonly<Record<string, number>>;
    }
  | {
      readonly kind: "gauge";
      readonly name: string;
      readonly help: string;
      readonly read: () => number | readonly Sample[];
    }
  | {
      readonly kind: "histogram";
      readonly name: string;
      readonly help: string;
      readonly histogram: Histogram;
    };

export type Family = {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly samples: () => readonly Sample[];
};

type LabelRow = { readonly family: string; readonly label: string; readonly value: string };
type Labels = Readonly<Record<string, LabelRow>>;

const row = (family: string, label: string, value: string): LabelRow => ({ family, label, value });
const received = (qos: string) => row("publishes_received", "qos", qos);
const dropped = (reason: string) => row("publishes_dropped", "reason", reason);
const sent = (qos: string) => row("deliveries", "qos", qos);
const unsent = (reason: string) => row("deliveries_dropped", "reason", reason);
const refused = (reason: string) => row("connections_refused", "reason", reason);
const ended = (reason: string) => row("connections_ended", "reason", reason);

/** Counters of the broker that tell apart what is one thing to an operator. */
const brokerLabels: Labels = {
  publishesQos0: received("0"),
  publishesQos1: received("1"),
  publishesQos2: received("2"),
  publishesDenied: dropped("denied"),
  publishesRefused: dropped("not_stored"),
  publishesAbandoned: dropped("connection_ended"),
  qos0Unstored: dropped("qos0_not_stored"),
  qos0Shed: dropped("overloaded"),
  deliveriesQos0: sent("0"),
  deliveriesQos1: sent("1"),
  deliveriesQos2: sent("2"),
  deliveriesDenied: unsent("denied"),
  deliveriesTooLarge: unsent("too_large"),
  deliveriesFull: unsent("buffer_full"),
  deliveriesPaced: unsent("device_pace"),
  deliveriesTooLargeForDevice: unsent("device_size"),
  connectionsFull: refused("connections_max"),
  connectionsPerAddress: refused("address_max"),
  connectionsShed: refused("overloaded"),
  connectionsTooFast: refused("too_fast"),
  connectionsNoHandshake: refused("no_handshake"),
  clientsBadCredentials: refused("bad_credentials"),
  clientsNotAuthorized: refused("not_authorized"),
  clientsUnavailable: refused("unavailable"),
  connectTimeouts: refused("connect_timeout"),
  disconnects: ended("disconnect"),
  disconnectsWithWill: ended("disconnect_with_will"),
  takeovers: ended("takeover"),
  endsProtocolError: ended("protocol_error"),
  endsKeepAlive: ended("keep_alive"),
  endsTransport: ended("transport"),
  endsServer: ended("server"),
  clientsLoginEnded: ended("login_ended"),
};

const familyHelp: Readonly<Record<string, string>> = {
  publishes_received: "PUBLISH packets received, by QoS",
  publishes_dropped: "messages that clients sent and that were not taken, by reason",
  deliveries: "messages sent to clients, by QoS",
  deliveries_dropped: "messages not sent to a client, by reason",
  connections_refused: "connections and CONNECTs refused, by reason",
  connections_ended: "connections ended, by who or what ended them",
};

const labelsOf: Readonly<Record<string, Labels>> = { broker: brokerLabels };

/** Families in a fixed order. */
export function familiesOf(sources: readonly MetricSource[]): Family[] {
  return sources.flatMap((source): Family[] => {
    if (source.kind === "counters") return counterFamilies(source.room, source.counters);
    const { help } = source;
    const name = `flagstone_${source.name}`;
    if (source.kind === "histogram") {
      const { histogram } = source;
      return [{ name, type: "histogram", help, samples: () => histogramSamples(histogram) }];
    }
    const samples = (): readonly Sample[] => {
      const value = source.read();
      return typeof value === "number" ? [{ value }] : value;
    };
    return [{ name, type: "gauge", help, samples }];
  });
}

function counterFamilies(room: string, counters: Readonly<Record<string, number>>): Family[] {
  const help = helpOf(counters);
  const families: Family[] = [];
  const labelled = new Map<string, Array<{ counter: string; row: LabelRow }>>();
  for (const counter of Object.keys(counters)) {
    const found = labelsOf[room]?.[counter];
    if (found === undefined) {
      families.push(plainFamily(room, counter, counters, help[counter] ?? counter));
      continue;
    }
    const members = labelled.get(found.family) ?? [];
    members.push({ counter, row: found });
    labelled.set(found.family, members);
  }
  for (const [family, members] of labelled) {
    const samples = (): Sample[] =>
      members.map(({ counter, row: { label, value } }) => ({
        labels: { [label]: value },
        value: counters[counter] ?? 0,
      }));
    const name = `flagstone_${room}_${family}_total`;
    families.push({ name, type: "counter", help: familyHelp[family] ?? family, samples });
  }
  return families;
}

/** `syncMsSum` is a total of seconds, `syncMsMax` a gauge of them, anything else a total. */
function plainFamily(
  room: string,
  counter: string,
  counters: Readonly<Record<string, number>>,
  help: string,
): Family {
  const timed = /^(.+)Ms(Sum|Max)$/.exec(counter);
  const factor = timed === null ? 1 : 1 / 1000;
  const samples = (): Sample[] => [{ value: (counters[counter] ?? 0) * factor }];
  const base = `flagstone_${room}_${snakeCase(timed?.[1] ?? counter)}`;
  if (timed?.[2] === "Max") return { name: `${base}_max_seconds`, type: "gauge", help, samples };
  const name = timed === null ? `${base}_total` : `${base}_seconds_total`;
  return { name, type: "counter", help, samples };
}

export function snakeCase(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
}

/** Buckets are cumulative in the text; `le` in seconds. */
function histogramSamples(histogram: Histogram): Sample[] {
  let below = 0;
  const buckets = histogram.boundsMs.map((boundMs, index) => {
    below += histogram.counts[index] ?? 0;
    return { labels: { le: String(boundMs / 1000) }, value: below };
  });
  return [
    ...buckets,
    { labels: { le: "+Inf" }, value: histogram.count },
    { labels: { part: "sum" }, value: histogram.sumMs / 1000 },
    { labels: { part: "count" }, value: histogram.count },
  ];
}

export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE;

/** The text of one scrape. */
export function metricsText(families: readonly Family[]): Promise<string> {
  const registry = new Registry();
  for (const family of families) registry.registerMetric(metricOf(family) as never);
  return registry.metrics();
}

/** What prom-client asks of a metric; its own classes would count a second time. */
function metricOf({ name, type, help, samples }: Family) {
  const get = async () => {
    const values = samples().map(({ labels = {}, value }) => {
      const { part, ...rest } = labels;
      const suffix = part ?? ("le" in labels ? "bucket" : undefined);
      const metricName = suffix === undefined ? name : `${name}_${suffix}`;
      return { metricName, labels: rest, value };
    });
    return { name, help, type, values, aggregator: "sum" };
  };
  return { name, help, type, get, reset: () => undefined };
}
