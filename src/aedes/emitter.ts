// An mqemitter over a Flagstone broker: several Aedes processes that use one broker hear each other.
// Messages travel as MQTT publishes under a prefix, through a client of MQTT.js that the program
// brings along and that reconnects by itself.
//
// Order: messages of one emitter arrive everywhere in the order of `emit`, the emitter's own
// listeners included: they hear a message when it has been to the broker and back. Back-pressure:
// the next message is taken from the broker when the listeners of this one are done. `emit` calls
// back when the broker has the message and the emitter's own listeners are done with it; a copy that
// was lost on its way back, with the connection, is not waited for.

import { type Cancel, type Clock, systemClock } from "../base/index.ts";
import { FilterTrie, parseTopicFilter, type TopicFilter } from "../topic/index.ts";
import { aedesErrors } from "./errors.ts";
import { decodePacket, encodePacket } from "./records.ts";
import type { AedesPacket } from "./types.ts";

/** What is used of a client of MQTT.js, connected or about to be. */
export interface MqttBusClient {
  readonly connected: boolean;
  publish(
    topic: string,
    payload: Buffer,
    options: { readonly qos: 1 },
    done: (error?: Error | null) => void,
  ): unknown;
  subscribe(
    filter: string,
    options: { readonly qos: 1 },
    done: (error: Error | null) => void,
  ): unknown;
  unsubscribe(filter: string, done: (error?: Error | null) => void): unknown;
  end(force: boolean, done: () => void): unknown;
  handleMessage: (packet: BusPacket, done: (error?: Error) => void) => void;
}

type BusPacket = { readonly topic: string; readonly payload: string | Buffer };

export type EmitterOptions = {
  /** First levels of the topics on the broker. Default `aedes-bus`. */
  readonly prefix?: string;
  /** Names this emitter; must differ from all others on the broker. */
  readonly id: string;
  /** Messages emitted and not called back; more are refused with AEDES_EMITTER_FULL. Default 10,000. */
  readonly pendingMax?: number;
};

export type BusMessage = { topic: string; readonly [field: string]: unknown };
export type BusListener = (message: BusMessage, done: () => void) => void;

type Done = (error?: Error) => void;
type Held = { readonly filter: TopicFilter; readonly listeners: Set<BusListener> };

/** An own message that the broker is to send back. */
type Awaited = {
  /** It has come: its listeners are at work. */
  arrive(): void;
  readonly finish: Done;
};

/** How long the broker's answer to a publish and the message itself may be apart. */
const ownWaitMs = 5000;

/** What an envelope has besides the message. */
type Envelope = AedesPacket & { origin: string; number: number; value?: unknown };

const anyFilter = { levelsMax: 65_535, controlCharacters: "allow" } as const;

export class FlagstoneEmitter {
  closed = false;
  /** Messages that listeners are busy with. */
  current = 0;
  readonly #client: MqttBusClient;
  readonly #prefix: string;
  readonly #id: string;
  readonly #pendingMax: number;
  readonly #held = new Map<string, Held>();
  readonly #trie = new FilterTrie<Held>();
  /** Own messages that are awaited back, by number. */
  readonly #awaited = new Map<number, Awaited>();
  readonly #clock: Clock;
  #pending = 0;
  #number = 0;

  constructor(
    client: MqttBusClient,
    { prefix = "aedes-bus", id, pendingMax = 10_000 }: EmitterOptions,
    clock: Clock = systemClock,
  ) {
    this.#clock = clock;
    this.#client = client;
    this.#prefix = `${prefix}/`;
    this.#id = id;
    this.#pendingMax = pendingMax;
    client.handleMessage = (packet, done) => this.#receive(packet, done);
  }

  /** Messages emitted and not called back. */
  get length(): number {
    return this.#pending;
  }

  on(topic: string, listener: BusListener, done: Done = () => undefined): this {
    const known = this.#held.get(topic);
    if (known !== undefined) {
      known.listeners.add(listener);
      this.#later(done);
      return this;
    }
    const filter = parseTopicFilter(topic, anyFilter);
    const held: Held = { filter, listeners: new Set([listener]) };
    this.#held.set(topic, held);
    this.#trie.add(prefixed(this.#prefix, topic), held);
    this.#client.subscribe(this.#prefix + topic, { qos: 1 }, (error) => done(error ?? undefined));
    return this;
  }

  removeListener(topic: string, listener: BusListener, done: Done = () => undefined): this {
    const held = this.#held.get(topic);
    held?.listeners.delete(listener);
    if (held === undefined || held.listeners.size > 0) this.#later(done);
    else this.removeAllListeners(topic, done);
    return this;
  }

  removeAllListeners(topic: string, done: Done = () => undefined): this {
    const held = this.#held.get(topic);
    if (held === undefined) {
      this.#later(done);
      return this;
    }
    this.#held.delete(topic);
    this.#trie.remove(prefixed(this.#prefix, topic), held);
    this.#client.unsubscribe(this.#prefix + topic, (error) => done(error ?? undefined));
    return this;
  }

  /** @throws never: AEDES_CLOSED and AEDES_EMITTER_FULL go to `done`. */
  emit(message: BusMessage, done: Done = () => undefined): this {
    if (this.closed) {
      this.#later(() => done(aedesErrors.closed()));
      return this;
    }
    if (this.#pending >= this.#pendingMax) {
      this.#later(() => done(aedesErrors.emitterFull({ limit: this.#pendingMax })));
      return this;
    }
    this.#pending++;
    const number = ++this.#number;
    const topic = this.#prefix + message.topic;
    let isOver = false;
    const finish: Done = (error) => {
      if (isOver) return;
      isOver = true;
      this.#awaited.delete(number);
      this.#pending--;
      done(error);
    };
    const taken = this.#trie.some(topic) ? this.#awaitOwn(number, finish) : finish;
    this.#client.publish(topic, encode(message, this.#id, number), { qos: 1 }, (error) =>
      error ? finish(error) : taken(),
    );
    return this;
  }

  /** Ends the client; what is still on its way is told AEDES_CLOSED. */
  close(done: () => void = () => undefined): this {
    this.closed = true;
    for (const { finish } of [...this.#awaited.values()]) finish(aedesErrors.closed());
    // Without a connection there is nothing that a patient end could wait for.
    this.#client.end(!this.#client.connected, done);
    return this;
  }

  /** The result is to be called when the broker has the message. */
  #awaitOwn(number: number, finish: Done): () => void {
    let left = 2;
    let cancel: Cancel = () => undefined;
    let hasArrived = false;
    const part = (): void => {
      left--;
      if (left === 0) finish();
    };
    this.#awaited.set(number, {
      arrive: () => {
        hasArrived = true;
        cancel();
      },
      finish: (error) => {
        cancel();
        if (error === undefined) part();
        else finish(error);
      },
    });
    return () => {
      if (!hasArrived) cancel = this.#clock.schedule(ownWaitMs, () => finish());
      part();
    };
  }

  #receive({ topic, payload }: BusPacket, done: (error?: Error) => void): void {
    if (this.closed || !topic.startsWith(this.#prefix)) {
      done();
      return;
    }
    let envelope: Envelope;
    try {
      envelope = decodePacket(topic, Buffer.from(payload)) as Envelope;
    } catch {
      done(); // published under our prefix by somebody else: not a message
      return;
    }
    const { origin, number, value, ...fields } = envelope;
    const message = (value === undefined ? fields : { ...fields, payload: value }) as BusMessage;
    const listeners: BusListener[] = [];
    this.#trie.match(topic, (held) => listeners.push(...held.listeners));
    const own = origin === this.#id ? this.#awaited.get(number) : undefined;
    own?.arrive();
    this.current++;
    let left = listeners.length;
    const finished = (): void => {
      left--;
      if (left > 0) return;
      this.current--;
      done();
      own?.finish();
    };
    if (left === 0) {
      left = 1;
      finished();
      return;
    }
    for (const listener of listeners) listener.call(this, message, finished);
  }

  /** Not within the caller's call. */
  #later(done: () => void): void {
    systemClock.soon(done);
  }
}

/** REQUIRES: the topic is a legal filter. */
function prefixed(prefix: string, topic: string): TopicFilter {
  return parseTopicFilter(prefix + topic, anyFilter);
}

function encode(message: BusMessage, origin: string, number: number): Buffer {
  const { payload, ...fields } = message;
  const isPlain = typeof payload === "string" || payload instanceof Uint8Array;
  const content = isPlain ? { payload } : payload === undefined ? {} : { value: payload };
  return encodePacket({ ...fields, ...content, origin, number } as unknown as AedesPacket);
}
