// Who gets in at the door: counts of connections by listener, address and in total, those that have
// not logged in yet, rates of new ones, and overload. A connection that is refused here costs an accept
// and a close, and leaves nothing but a count.
//
// An address is remembered while it has connections, or for its rate; those remembered for nothing but
// a rate are bounded, and the one not seen longest is forgotten.

import { createLru, type Lru } from "../../base/index.ts";
import type { BrokerCounters } from "../counters.ts";
import type { ListenerTerms } from "../listener-terms.ts";
import type { BrokerSettings } from "../settings.ts";
import { addressKey } from "./address.ts";
import type { Overload } from "./overload.ts";
import { createRate, Rate, Traffic } from "./rate.ts";

export type AdmissionSettings = Pick<
  BrokerSettings,
  | "connectionsMax"
  | "connectionsPerAddressMax"
  | "preAuthSocketsPerAddress"
  | "connectsPerS"
  | "connectsPerSPerAddress"
  | "messagesPerS"
  | "bytesPerS"
  | "messagesPerSPerAddress"
  | "bytesPerSPerAddress"
>;

/** One admitted connection: what it counts for. */
export interface Ticket {
  readonly traffic: Traffic;
  /** It has logged in, or was refused: limits before that no longer count it. */
  decided(): void;
  closed(): void;
}

export type Refusal = { readonly event: string; readonly fields: Record<string, unknown> };

class Address {
  connections = 0;
  undecided = 0;
  readonly messages: Rate | undefined;
  readonly bytes: Rate | undefined;

  constructor(settings: AdmissionSettings, nowMs: number) {
    this.messages = createRate(settings.messagesPerSPerAddress, nowMs);
    this.bytes = createRate(settings.bytesPerSPerAddress, nowMs);
  }
}

const ratesMax = 100_000;

export class Admission {
  readonly #settings: AdmissionSettings;
  readonly #counters: BrokerCounters;
  readonly #overload: Pick<Overload, "level">;
  readonly #addresses = new Map<string, Address>();
  readonly #addressRates: Lru<Rate> = createLru<Rate>(ratesMax, () => 1);
  readonly #listenerCounts = new Map<string, number>();
  readonly #listenerRates = new Map<string, Rate>();
  readonly #rate: Rate | undefined;
  readonly #messages: Rate | undefined;
  readonly #bytes: Rate | undefined;
  #connections = 0;

  constructor(
    settings: AdmissionSettings,
    counters: BrokerCounters,
    overload: Pick<Overload, "level">,
    nowMs: number,
  ) {
    this.#settings = settings;
    this.#counters = counters;
    this.#overload = overload;
    this.#rate = createRate(settings.connectsPerS, nowMs);
    this.#messages = createRate(settings.messagesPerS, nowMs);
    this.#bytes = createRate(settings.bytesPerS, nowMs);
  }

  admit(remote: string, terms: ListenerTerms, nowMs: number): Ticket | Refusal {
    const key = addressKey(remote);
    const refusal =
      this.#overloadFault() ??
      this.#countFault(terms) ??
      this.#addressFault(key) ??
      this.#rateFault(key, terms, nowMs);
    if (refusal !== undefined) {
      return { event: refusal.event, fields: { remote, listener: terms.name, ...refusal.fields } };
    }
    return this.#enter(key, terms, nowMs);
  }

  #overloadFault(): Refusal | undefined {
    if (this.#overload.level === 0) return undefined;
    this.#counters.connectionsShed++;
    return { event: "broker.connection_shed", fields: {} };
  }

  #countFault({ name, limits }: ListenerTerms): Refusal | undefined {
    const { connectionsMax } = this.#settings;
    const ofListener = this.#listenerCounts.get(name) ?? 0;
    if (this.#connections < connectionsMax && ofListener < limits.connectionsMax) return undefined;
    this.#counters.connectionsFull++;
    const max = this.#connections < connectionsMax ? limits.connectionsMax : connectionsMax;
    return { event: "broker.connections_full", fields: { connectionsMax: max } };
  }

  #addressFault(key: string | undefined): Refusal | undefined {
    const address = key === undefined ? undefined : this.#addresses.get(key);
    if (address === undefined) return undefined;
    const { preAuthSocketsPerAddress, connectionsPerAddressMax } = this.#settings;
    const isFull = address.connections >= connectionsPerAddressMax;
    if (!isFull && address.undecided < preAuthSocketsPerAddress) return undefined;
    this.#counters.connectionsPerAddress++;
    const fields = isFull ? { connectionsPerAddressMax } : { preAuthSocketsPerAddress };
    return { event: "broker.address_full", fields };
  }

  #rateFault(key: string | undefined, terms: ListenerTerms, nowMs: number): Refusal | undefined {
    const rates = [this.#addressRate(key, nowMs), this.#listenerRate(terms, nowMs), this.#rate];
    if (rates.every((rate) => rate === undefined || rate.take(nowMs))) return undefined;
    this.#counters.connectionsTooFast++;
    return { event: "broker.connections_too_fast", fields: {} };
  }

  #addressRate(key: string | undefined, nowMs: number): Rate | undefined {
    const { connectsPerSPerAddress } = this.#settings;
    if (key === undefined || !Number.isFinite(connectsPerSPerAddress)) return undefined;
    const known = this.#addressRates.get(key);
    if (known !== undefined) return known;
    const rate = new Rate(connectsPerSPerAddress, nowMs);
    this.#addressRates.set(key, rate);
    return rate;
  }

  #listenerRate({ name, limits }: ListenerTerms, nowMs: number): Rate | undefined {
    if (!Number.isFinite(limits.connectsPerS)) return undefined;
    const known = this.#listenerRates.get(name);
    if (known !== undefined) return known;
    const rate = new Rate(limits.connectsPerS, nowMs);
    this.#listenerRates.set(name, rate);
    return rate;
  }

  #enter(key: string | undefined, { name, limits }: ListenerTerms, nowMs: number): Ticket {
    const address = key === undefined ? undefined : this.#addressOf(key, nowMs);
    this.#connections++;
    this.#listenerCounts.set(name, (this.#listenerCounts.get(name) ?? 0) + 1);
    if (address !== undefined) {
      address.connections++;
      address.undecided++;
    }
    let isDecided = false;
    const decided = (): void => {
      if (isDecided) return;
      isDecided = true;
      if (address !== undefined) address.undecided--;
    };
    const closed = (): void => {
      decided();
      this.#connections--;
      this.#listenerCounts.set(name, (this.#listenerCounts.get(name) ?? 1) - 1);
      if (key === undefined || address === undefined) return;
      address.connections--;
      if (address.connections === 0) this.#addresses.delete(key);
    };
    const { messagesPerS, bytesPerS } = limits;
    const messages = [createRate(messagesPerS, nowMs), address?.messages, this.#messages];
    const bytes = [createRate(bytesPerS, nowMs), address?.bytes, this.#bytes];
    return { traffic: new Traffic(messages, bytes), decided, closed };
  }

  #addressOf(key: string, nowMs: number): Address {
    const known = this.#addresses.get(key);
    if (known !== undefined) return known;
    const address = new Address(this.#settings, nowMs);
    this.#addresses.set(key, address);
    return address;
  }
}
