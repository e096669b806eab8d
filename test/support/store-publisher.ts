// A publisher of a simulated history: it appends plainly, at QoS 2 with evidence and releases, or
// as a named writer, repeats what was not answered as MQTT clients and sites do, and knows which of
// its appends must be stored exactly once, may be, or must not.

import type { CodedError, SeededRandom } from "../../src/base/index.ts";
import type { AppendOutcome, LocalStore } from "../../src/store/index.ts";
import { appendRequest } from "./store-calls.ts";

const packetIdMax = 12;
const appendsInFlightMax = 40;

export type Sent = {
  readonly name: string;
  readonly number: number;
  readonly topic: string;
  readonly kind: "plain" | "evidence" | "writer";
  /** False: only its evidence is kept. */
  readonly keep: boolean;
  /** Where it was sent: a database that comes or goes sends a repeat elsewhere. */
  readonly shards: Set<number>;
  acked: boolean;
};

/** A packet id: publishing until PUBREC, taken until PUBREL, releasing until PUBCOMP. */
type Held = { readonly sent: Sent; state: "publishing" | "taken" | "releasing" };

export type PublisherHooks = {
  readonly nextNumber: () => number;
  /** Acked for the first time; `timeUs`, in that shard, where the outcome tells it. */
  readonly onAcked: (sent: Sent, timeUs: number | undefined, shard: number) => void;
  readonly onRepeat: () => void;
  readonly onRefused: (error: CodedError) => void;
  readonly fault: (message: string) => void;
};

export class Publisher {
  readonly name: string;
  readonly sent: Sent[] = [];
  readonly #random: SeededRandom;
  readonly #hooks: PublisherHooks;
  readonly #ids = new Map<number, Held>();
  /** `isStuck`: one was refused, and what came behind it would be a gap. */
  #writer:
    | { epoch: number; next: number; times: Map<number, number>; isStuck: boolean }
    | undefined;
  #unanswered = new Map<number, Sent>();
  #inFlight = 0;
  #life = 0;
  /** Grows when damage may have taken what was known of this one. */
  #incarnation = 5;

  constructor(name: string, random: SeededRandom, hooks: PublisherHooks) {
    this.name = name;
    this.#random = random;
    this.#hooks = hooks;
  }

  /** Damage may have taken its evidence and its writer: it comes back as somebody else. */
  forget(): void {
    this.#incarnation += 10;
    this.#ids.clear();
    this.#unanswered.clear();
    this.#writer = undefined;
  }

  get #claim() {
    return { incarnation: this.#incarnation, ownerEpoch: this.#incarnation + 1 };
  }

  get #writerName(): string {
    return `w-${this.name}-${this.#incarnation}`;
  }

  /** A new process: what is taken there must be what was acked, or was on its way. */
  async connect(store: LocalStore): Promise<void> {
    this.#life++;
    this.#inFlight = 0;
    await store.evidence.open(this.name, this.#claim);
    const taken = new Set(store.evidence.list(this.name, this.#claim));
    for (const [id, held] of this.#ids) {
      if (held.state === "taken" && !taken.has(id)) {
        this.#hooks.fault(`${this.name}: evidence of ${id} (${held.sent.name}) is lost`);
      }
    }
    for (const id of taken) {
      if (!this.#ids.has(id)) this.#hooks.fault(`${this.name}: evidence of ${id} came back`);
    }
    if (this.#writer === undefined) {
      const epoch = await store.openWriter(this.#writerName, this.name);
      this.#writer = { epoch, next: 1, times: new Map(), isStuck: false };
    }
    this.#writer.isStuck = false;
    for (const [sequence, sent] of this.#unanswered) this.#stamp(store, sequence, sent);
  }

  append(store: LocalStore, topic: string, paddingBytes = 0): void {
    if (this.#inFlight >= appendsInFlightMax) return;
    const sent = this.#create(topic, "plain");
    const frame = Buffer.from(`${sent.name}|${"y".repeat(paddingBytes)}`);
    const over = paddingBytes > 0 ? { frame } : {};
    this.#send(store, sent, over, (outcome, shard) => this.#ack(sent, outcome, shard));
  }

  /** Several at once, of two topics in turn; large ones make more than one item of it. */
  appendRun(store: LocalStore, topic: string): void {
    if (this.#inFlight >= appendsInFlightMax) return;
    const topics = Array.from({ length: this.#random.between(1, 25) }, (_, at) =>
      at % 3 === 2 ? `${topic}/run` : topic,
    );
    const sents = topics.map((each) => this.#create(each, "plain"));
    const padding = this.#random.chance(0.1) ? "z".repeat(this.#random.below(30_000)) : "";
    const frames = sents.map(({ name }) => Buffer.from(`${name}|${padding}`));
    const starts = [0];
    for (const frame of frames) starts.push(starts.at(-1)! + frame.length);
    const shards = topics.map((each) => store.shardOf(each, this.name));
    for (const [at, sent] of sents.entries()) sent.shards.add(shards[at]!);
    const run = { publisher: this.name, form: "raw", qos: 1, topics, starts } as const;
    const life = this.#life;
    let left = sents.length;
    this.#inFlight++;
    store.appendRun({ ...run, bytes: Buffer.concat(frames) }, (error, { from, count, timeUs }) => {
      if (life !== this.#life) return this.#hooks.fault("a dead process acked");
      left -= count;
      if (left === 0) this.#inFlight--;
      if (left < 0) return this.#hooks.fault("a run was told of twice");
      if (error !== undefined) return this.#hooks.onRefused(error);
      for (let at = 0; at < count; at++) {
        const outcome = { kind: "stored", timeUs: timeUs + at } as const;
        this.#ack(sents[from + at]!, outcome, shards[from + at]!);
      }
    });
  }

  appendWithEvidence(store: LocalStore, topic: string): void {
    const packetId = this.#random.between(1, packetIdMax);
    let held = this.#ids.get(packetId);
    if (held === undefined) {
      const sent = this.#create(topic, "evidence", this.#random.chance(0.8));
      held = { sent, state: "publishing" };
      this.#ids.set(packetId, held);
    } else if (held.state !== "publishing" && this.#random.chance(0.8)) {
      this.#release(store, packetId, held);
      return;
    }
    if (held.state === "releasing") return;
    const { sent } = held;
    this.#send(store, sent, { evidence: { ...this.#claim, packetId } }, (outcome, shard) => {
      if (held.state === "publishing") held.state = "taken";
      this.#ack(sent, outcome, shard);
    });
  }

  appendAsWriter(store: LocalStore, topic: string): void {
    const writer = this.#writer;
    if (writer === undefined || writer.isStuck) return;
    if (this.#unanswered.size >= appendsInFlightMax) return;
    if (writer.times.size > 0 && this.#random.chance(0.2)) {
      this.#repeatAnswered(store, this.#random.pick([...writer.times.keys()]));
      return;
    }
    const sent = this.#create(topic, "writer");
    const sequence = writer.next++;
    this.#unanswered.set(sequence, sent);
    this.#stamp(store, sequence, sent);
  }

  /** A full read shows how often each append is there. */
  check(seen: ReadonlyMap<string, number>, isDropped: (sent: Sent) => boolean): void {
    for (const sent of this.sent) {
      const count = seen.get(sent.name) ?? 0;
      if (count > 1) this.#hooks.fault(`${sent.name} was stored ${count} times`);
      if (!sent.keep && count > 0) this.#hooks.fault(`${sent.name} was stored, not only taken`);
      if (!sent.keep || !sent.acked || count > 0 || isDropped(sent)) continue;
      this.#hooks.fault(`acked ${sent.name} is lost`);
    }
  }

  #create(topic: string, kind: Sent["kind"], keep = true): Sent {
    const number = this.#hooks.nextNumber();
    const name = `v${number}`;
    const sent: Sent = { name, number, topic, kind, keep, shards: new Set(), acked: false };
    this.sent.push(sent);
    return sent;
  }

  #release(store: LocalStore, packetId: number, held: Held): void {
    held.state = "releasing";
    const life = this.#life;
    store.evidence.release(this.name, this.#claim, packetId, (error) => {
      if (life !== this.#life) return this.#hooks.fault("a dead process released");
      if (error !== undefined) return this.#hooks.onRefused(error);
      if (this.#ids.get(packetId) === held) this.#ids.delete(packetId);
    });
  }

  #stamp(store: LocalStore, sequence: number, sent: Sent): void {
    const writer = this.#writer!;
    const stamp = { name: this.#writerName, epoch: writer.epoch, sequence };
    this.#send(store, sent, { writer: stamp }, (outcome, shard) => {
      this.#unanswered.delete(sequence);
      if (outcome.kind !== "stored") return this.#hooks.fault("a writer got no time");
      writer.times.set(sequence, outcome.timeUs);
      writer.times.delete(sequence - 20);
      this.#ack(sent, outcome, shard);
    });
  }

  #repeatAnswered(store: LocalStore, sequence: number): void {
    const writer = this.#writer!;
    const timeUs = writer.times.get(sequence);
    const stamp = { name: this.#writerName, epoch: writer.epoch, sequence };
    const request = appendRequest("never", "never|", { publisher: this.name, writer: stamp });
    store.append(request, (error, outcome) => {
      if (error !== undefined) return this.#hooks.onRefused(error);
      this.#hooks.onRepeat();
      if (outcome?.kind === "stored" && outcome.timeUs === timeUs) return;
      this.#hooks.fault(`repeat of ${sequence} got another answer`);
    });
  }

  #send(
    store: LocalStore,
    sent: Sent,
    over: Parameters<typeof appendRequest>[2],
    onDone: (outcome: AppendOutcome, shard: number) => void,
  ): void {
    if (over?.writer !== undefined && this.#writer?.isStuck === true) return;
    const padding = this.#random.chance(0.05) ? "x".repeat(this.#random.below(70_000)) : "";
    const value = `${sent.name}|${padding}`;
    const request = appendRequest(sent.topic, value, {
      ...{ publisher: this.name, keep: sent.keep, qos: sent.kind === "evidence" ? 2 : 1 },
      ...over,
    });
    const life = this.#life;
    const shard = store.shardOf(sent.topic, this.name);
    sent.shards.add(shard);
    this.#inFlight++;
    store.append(request, (error, outcome) => {
      if (life !== this.#life) return this.#hooks.fault("a dead process acked");
      this.#inFlight--;
      if (error !== undefined) {
        if (over?.writer !== undefined && this.#writer !== undefined) this.#writer.isStuck = true;
        return this.#hooks.onRefused(error);
      }
      if (outcome?.kind === "repeat") this.#hooks.onRepeat();
      onDone(outcome!, shard);
    });
  }

  #ack(sent: Sent, outcome: AppendOutcome, shard: number): void {
    const timeUs = outcome.kind === "stored" ? outcome.timeUs : undefined;
    // A repeat is answered before the original, which alone tells the time.
    if (sent.acked && timeUs === undefined) return;
    sent.acked = true;
    this.#hooks.onAcked(sent, timeUs, shard);
  }
}
