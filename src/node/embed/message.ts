// Messages as an embedding program sees them: plain values, made from stored frames and back.

import {
  createFrame,
  framePayload,
  frameProperties,
  type Properties,
  publishPropertiesFault,
} from "../../mqtt/index.ts";
import type { Qos, Will } from "../../session/index.ts";
import type { Ttv } from "../../store/index.ts";
import { nodeErrors } from "../errors.ts";
import { checkOptions, isRecord, type Rule, type Rules, rules } from "./arguments.ts";

export type InsideMessage = {
  readonly topic: string;
  /** A copy: it may be kept. */
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Client id of the publisher; "" for the program itself. */
  readonly publisher: string;
  /** Wall clock of its storing in microseconds, unique in its shard; 0 where it was not stored. */
  readonly timeUs: number;
  /** Of MQTT 5; without alias and subscription identifiers. */
  readonly properties: Properties;
};

export type PublishOptions = {
  /** Default 1. */
  readonly qos?: Qos;
  readonly retain?: boolean;
  readonly properties?: Properties;
};

const publishRules: Rules<PublishOptions> = {
  qos: rules.qos,
  retain: rules.flag,
  properties: { expected: "an object", holds: isRecord },
};

/** @throws NODE_ARGUMENT_INVALID. */
export function checkPublishOptions(options: PublishOptions): void {
  checkOptions<PublishOptions>("publish", options, publishRules);
  const reason = publishPropertiesFault(options.properties ?? {});
  if (reason === undefined) return;
  throw nodeErrors.argumentInvalid({ what: "the properties of publish", reason });
}

export const payloadRule: Rule = {
  expected: "a text or bytes",
  holds: (value) => typeof value === "string" || value instanceof Uint8Array,
};

export function messageOf(ttv: Ttv): InsideMessage {
  const { topic, qos, retain, publisher, timeUs, form, frame, expiryOffset } = ttv;
  const facts = { topic, qos, retain, publisher, timeUs };
  if (form === "raw") return { ...facts, payload: Buffer.from(frame), properties: {} };
  const stored = { bytes: frame, version: form === "v5" ? 5 : 4, expiryOffset } as const;
  const payload = Buffer.from(framePayload(stored));
  const properties = form === "v5" ? frameProperties(stored) : {};
  return { ...facts, payload, properties };
}

/** In the form in which the broker publishes by itself. */
export function frameOf(
  topic: string,
  payload: string | Uint8Array,
  { qos = 1, retain = false, properties = {} }: PublishOptions,
): Will {
  const bytes = Buffer.from(payload as Uint8Array);
  const frame = createFrame({ topic, payload: bytes, qos, retain, properties });
  return {
    ...{ topic, qos, retain, delayS: 0, version: 5, frame: frame.bytes },
    messageExpiryS: properties.messageExpiryS,
    expiryOffset: frame.expiryOffset,
  };
}
