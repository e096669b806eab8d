// Topic aliases of one connection, in both directions; they end with it (3.3.2-7).

import { protocolError, topicAliasInvalid } from "../errors.ts";

/** Aliases that the client has set. */
export class InboundAliases {
  readonly #aliasMax: number;
  readonly #topics = new Map<number, string>();

  /** `aliasMax` is what our CONNACK announced. */
  constructor(aliasMax: number) {
    this.#aliasMax = aliasMax;
  }

  /**
   * The topic that a PUBLISH means by `alias`; a topic in it sets the alias anew.
   * @throws MQTT_TOPIC_ALIAS_INVALID (0x94), MQTT_PROTOCOL_ERROR for one that was never set.
   */
  resolve(alias: number, topic: string): string {
    if (alias < 1 || alias > this.#aliasMax) throw topicAliasInvalid(alias, this.#aliasMax);
    if (topic !== "") {
      this.#topics.set(alias, topic);
      return topic;
    }
    const known = this.#topics.get(alias);
    if (known === undefined) throw protocolError(`topic alias ${alias} was never set`);
    return known;
  }
}

export type AliasUse = { readonly alias: number; readonly sendTopic: boolean };

/**
 * Aliases that we set at the client, from the first PUBLISH on: the first topics get them and keep
 * them. Aliases are not moved to newer topics, since with many topics each move would cost more
 * bytes than it saves.
 */
export class OutboundAliases {
  readonly #aliasMax: number;
  readonly #uses = new Map<string, AliasUse>();

  /** `aliasMax` is the lower of the client's maximum and our own cap; 0 for none. */
  constructor(aliasMax: number) {
    this.#aliasMax = aliasMax;
  }

  get enabled(): boolean {
    return this.#aliasMax > 0;
  }

  /** How to send `topic`; undefined: without an alias. A new alias counts after `confirm`. */
  find(topic: string): AliasUse | undefined {
    const known = this.#uses.get(topic);
    if (known !== undefined) return known;
    if (this.#uses.size >= this.#aliasMax) return undefined;
    return { alias: this.#uses.size + 1, sendTopic: true };
  }

  /** The packet that sets the alias was written. */
  confirm(topic: string, use: AliasUse): void {
    if (use.sendTopic) this.#uses.set(topic, { alias: use.alias, sendTopic: false });
  }
}
