// PUBLISHes of one client, one by one: read, their aliases resolved, held to what CONNACK offered and
// to our Receive Maximum.

import type { CodedError } from "../../base/index.ts";
import type { DecodeContext } from "../codec/decode-context.ts";
import { type InboundPublish, PublishReader } from "../codec/publish-frame.ts";
import { reason } from "../codec/reasons.ts";
import { mqttErrors } from "../errors.ts";
import { InboundAliases } from "./aliases.ts";
import { offerFault } from "./handshake.ts";
import type { ReceiveQuota } from "./receive-quota.ts";
import type { ServerConnectionSettings } from "./server-types.ts";

export class PublishIntake {
  readonly #settings: ServerConnectionSettings;
  readonly #context: DecodeContext;
  readonly #quota: ReceiveQuota;
  readonly #reader: PublishReader;
  readonly #aliases: InboundAliases;

  constructor(settings: ServerConnectionSettings, context: DecodeContext, quota: ReceiveQuota) {
    this.#settings = settings;
    this.#context = context;
    this.#quota = quota;
    this.#reader = new PublishReader(context);
    this.#aliases = new InboundAliases(settings.topicAliasMaximum);
  }

  /** @throws the faults of the packet, each with the reason code to answer. */
  read(bytes: Buffer, start: number, bodyStart: number, end: number): InboundPublish {
    const publish = this.#reader.read(bytes, start, bodyStart, end);
    if (publish.aliasOffset > 0) {
      publish.topic = this.#aliases.resolve(publish.topicAlias, publish.topic);
    }
    const fault = offerFault(publish, this.#settings);
    if (fault !== undefined) throw fault;
    const { qos, packetId } = publish;
    if (qos === 0 || this.#context.version !== 5) return publish;
    if (!this.#quota.take(qos, packetId)) {
      throw this.#tooMany();
    }
    return publish;
  }

  #tooMany(): CodedError {
    const { receiveMaximum } = this.#quota;
    const reasonCode = reason.receiveMaximumExceeded;
    return mqttErrors.receiveMaximumExceeded({ reasonCode, receiveMaximum });
  }
}
