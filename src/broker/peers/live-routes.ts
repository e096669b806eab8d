// Live routes between the brokers of a cluster (docs/decisions/093-sessions-across-nodes.md): each node
// tells the others what its connected clients want directly, and a message goes once to each node that
// wants it. To the publish path another node is one more target in the live trie.
//
// Keeps: messages of a publisher reach another node in the order of their fan-out here; what came from
// another node goes to clients of this one only; a shared group that has members on several nodes
// gets one copy, at one of them.

import type { LiveSubscriptions, LiveTarget, Subscription } from "../../session/index.ts";
import type { Ttv } from "../../store/index.ts";
import { interestWord, OwnInterest } from "./interest.ts";
import { defaultOutboxSettings, Outbox, type OutboxSettings } from "./outbox.ts";
import { type Addressees, decodeInterest, readMessages, type Want, wants } from "./peer-codec.ts";
import type { LivePeers, LivePeersParts, PeerWords } from "./ports.ts";

export type LiveRoutesParts = LivePeersParts & { readonly settings?: Partial<OutboxSettings> };

export const messagesWord = "live.messages";
const heard = Buffer.alloc(0);

/** For `createBroker`. */
export function createLiveRoutes(words: PeerWords): (parts: LiveRoutesParts) => LiveRoutes {
  return (parts) => new LiveRoutes(words, parts);
}

export class LiveRoutes implements LivePeers {
  readonly live: LiveSubscriptions = {
    set: (target, subscription) => this.#set(target, subscription),
    remove: (target, filter) => this.#remove(target, filter),
    removeAll: (target) => this.#removeAll(target),
  };
  readonly #parts: LiveRoutesParts;
  readonly #words: PeerWords;
  readonly #own: OwnInterest;
  readonly #peers = new Map<number, PeerTarget>();
  readonly #groups = new Map<string, RoutedGroup>();
  readonly #forget: () => void;
  #isCrowded = false;
  #isFlushPlanned = false;

  constructor(words: PeerWords, parts: LiveRoutesParts) {
    this.#words = words;
    this.#parts = parts;
    this.#own = new OwnInterest(words, parts.clock);
    words.handle(interestWord, (from, bytes) => this.#hear(from, bytes));
    words.handle(messagesWord, (_from, bytes) => {
      readMessages(bytes, (message, to) => this.#deliver(message, to));
      return undefined;
    });
    this.#forget = words.onPeersChanged((node, isReached) => {
      this.#drop(node);
      if (isReached) this.#own.reached(node);
      else this.#own.lost(node);
    });
    for (const node of words.peers()) this.#own.reached(node);
  }

  get isCrowded(): boolean {
    return this.#isCrowded;
  }

  /** Whether all that the node's clients want is known here. */
  knows(node: number): boolean {
    return this.#peers.get(node)?.isComplete === true;
  }

  /** Filters and groups of other nodes, each counted for each node. */
  get filterCount(): number {
    return [...this.#peers.values()].reduce((sum, peer) => sum + peer.filterCount, 0);
  }

  settled(): Promise<void> | undefined {
    return this.#own.settled();
  }

  flush(): void {
    for (const { outbox } of this.#peers.values()) if (!outbox.isEmpty) outbox.flush();
  }

  close(): void {
    this.#forget();
    for (const node of [...this.#peers.keys()]) {
      this.#own.lost(node);
      this.#drop(node);
    }
  }

  // -------------------------------------------------------------- clients of this node

  #set(target: LiveTarget, subscription: Subscription): void {
    if (target.takes === "dealt") {
      this.#own.count(target.clientId, "dealt", 1);
      this.#group(target.clientId, subscription).local = target;
      return;
    }
    const isNew = this.#parts.trie.set(target, subscription);
    if (isNew) this.#count(target.takes, subscription.filter, 1);
  }

  #remove(target: LiveTarget, filter: string): void {
    const { takes } = target;
    if (takes === "dealt") return this.#removeAll(target);
    if (this.#parts.trie.remove(target, filter)) this.#count(takes, filter, -1);
  }

  #removeAll(target: LiveTarget): void {
    const { takes } = target;
    if (takes !== "dealt") {
      for (const filter of this.#parts.trie.removeAll(target)) this.#count(takes, filter, -1);
      return;
    }
    const group = this.#groups.get(target.clientId);
    if (group?.local !== target) return;
    this.#own.count(target.clientId, "dealt", -1);
    group.local = undefined;
    this.#endGroup(group);
  }

  /** What a broker says of itself is not for the clients of others. */
  #count(takes: "all" | "unstored", filter: string, change: 1 | -1): void {
    if (!this.#parts.isClosed(filter)) this.#own.count(filter, takes, change);
  }

  // -------------------------------------------------------------- other nodes

  #hear(from: number, bytes: Uint8Array): Uint8Array {
    const { isFirst, isComplete, filters } = decodeInterest(bytes);
    if (isFirst) this.#drop(from);
    const peer = this.#peers.get(from) ?? this.#addPeer(from);
    for (const [filter, want] of filters) {
      if (filter.startsWith("$share/")) {
        if (want === wants.nothing) this.#leaveGroup(peer, filter);
        else this.#joinGroup(peer, filter);
        continue;
      }
      if (want === wants.nothing) this.#parts.trie.remove(peer, filter);
      else this.#parts.trie.set(peer, subscriptionOf(filter));
      peer.note(filter, want);
    }
    peer.isComplete ||= isComplete;
    return heard;
  }

  #addPeer(node: number): PeerTarget {
    const { clock, counters, settings } = this.#parts;
    const outbox = new Outbox({
      ...{ clock, counters, settings: { ...defaultOutboxSettings, ...settings } },
      send: (batch) => this.#words.tell(node, messagesWord, batch),
      isReached: () => this.#words.peers().includes(node),
      changed: () => this.#crowdChanged(),
    });
    const peer = new PeerTarget(outbox, () => this.#planFlush());
    this.#peers.set(node, peer);
    return peer;
  }

  #drop(node: number): void {
    const peer = this.#peers.get(node);
    if (peer === undefined) return;
    this.#peers.delete(node);
    this.#parts.trie.removeAll(peer);
    for (const name of [...peer.groups]) this.#leaveGroup(peer, name);
    peer.outbox.clear();
  }

  /** At the latest: who acknowledges something flushes before. */
  #planFlush(): void {
    if (this.#isFlushPlanned) return;
    this.#isFlushPlanned = true;
    this.#parts.clock.soon(() => {
      this.#isFlushPlanned = false;
      this.flush();
    });
  }

  #crowdChanged(): void {
    const isCrowded = [...this.#peers.values()].some(({ outbox }) => outbox.isCrowded);
    if (isCrowded === this.#isCrowded) return;
    this.#isCrowded = isCrowded;
    const { counters, log, onRoom } = this.#parts;
    if (!isCrowded) return onRoom();
    counters.routesCrowded++;
    log.warn("broker.peer_slow", { nodes: this.#words.peers().length });
  }

  #deliver(message: Ttv, { isStored, isForAll, groups }: Addressees): void {
    const { trie, counters } = this.#parts;
    counters.routedReceived++;
    if (isForAll) {
      for (const { target, subscriptions } of trie.match(message.topic)) {
        if (isOfThisNode(target)) target.deliver(message, subscriptions, isStored);
      }
    }
    for (const name of groups) {
      const group = this.#groups.get(name);
      // Its last member here has left meanwhile.
      if (group?.local === undefined) counters.routedLate++;
      else group.local.deliver(message, [group.subscription], isStored);
    }
  }

  // -------------------------------------------------------------- shared groups

  #group(name: string, subscription: Subscription): RoutedGroup {
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const group = new RoutedGroup(name, subscription);
    this.#groups.set(name, group);
    this.#parts.trie.set(group, subscription);
    return group;
  }

  #endGroup(group: RoutedGroup): void {
    if (group.local !== undefined || group.peers.length > 0) return;
    this.#groups.delete(group.clientId);
    this.#parts.trie.removeAll(group);
  }

  #joinGroup(peer: PeerTarget, name: string): void {
    const group = this.#group(name, subscriptionOf(name.slice(name.indexOf("/", 7) + 1)));
    peer.groups.add(name);
    if (!group.peers.includes(peer)) group.peers.push(peer);
  }

  #leaveGroup(peer: PeerTarget, name: string): void {
    peer.groups.delete(name);
    const group = this.#groups.get(name);
    if (group === undefined) return;
    const at = group.peers.indexOf(peer);
    if (at >= 0) group.peers.splice(at, 1);
    this.#endGroup(group);
  }
}

/** Another node, for all of its clients. */
class PeerTarget implements LiveTarget {
  readonly clientId = "";
  readonly takes = "all";
  readonly outbox: Outbox;
  readonly groups = new Set<string>();
  isComplete = false;
  readonly #wanted = new Map<string, Want>();
  readonly #added: () => void;

  constructor(outbox: Outbox, added: () => void) {
    this.outbox = outbox;
    this.#added = added;
  }

  get filterCount(): number {
    return this.#wanted.size + this.groups.size;
  }

  note(filter: string, want: Want): void {
    if (want === wants.nothing) this.#wanted.delete(filter);
    else this.#wanted.set(filter, want);
  }

  deliver(message: Ttv, subscriptions: readonly Subscription[], stored: boolean): void {
    const isAll = ({ filter }: Subscription): boolean => this.#wanted.get(filter) === wants.all;
    if (stored && !subscriptions.some(isAll)) return;
    this.send(message, stored, undefined);
  }

  send(message: Ttv, stored: boolean, group: string | undefined): void {
    this.outbox.add(message, stored, group);
    this.#added();
  }
}

/** A shared group with members here, at other nodes, or both: they take turns. */
class RoutedGroup implements LiveTarget {
  readonly clientId: string;
  readonly takes = "dealt";
  readonly subscription: Subscription;
  local: LiveTarget | undefined;
  readonly peers: PeerTarget[] = [];
  #turn = 0;

  constructor(name: string, subscription: Subscription) {
    this.clientId = name;
    this.subscription = subscription;
  }

  deliver(message: Ttv, subscriptions: readonly Subscription[], stored: boolean): void {
    const { local, peers } = this;
    const count = peers.length + (local === undefined ? 0 : 1);
    this.#turn = (this.#turn + 1) % count;
    const peer = peers[this.#turn];
    if (peer !== undefined) peer.send(message, stored, this.clientId);
    else local?.deliver(message, subscriptions, stored);
  }
}

function isOfThisNode(target: LiveTarget): boolean {
  return target.takes !== "dealt" && !(target instanceof PeerTarget);
}

function subscriptionOf(filter: string): Subscription {
  const everything = { noLocal: false, retainAsPublished: true, retainHandling: 2 } as const;
  return { filter, qos: 2, identifier: 0, ...everything };
}
