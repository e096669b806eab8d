// One node of a scripted conversation: the core with a disk and a state machine in memory, whose
// moments of persistence are the script's.
//
// Keeps: what `persist off` holds back is done in order by the first `ready` after `on`, and lost
// by a crash; the state machine (index and texts) is part of the disk.

import { assert, assertPresent } from "../../base/index.ts";
import { Raft } from "../core/raft.ts";
import type {
  Configuration,
  Entry,
  HardState,
  Message,
  NodeId,
  RaftSettings,
  ReadState,
  Ready,
  SnapshotMeta,
} from "../core/types.ts";

type Applied = { readonly index: number; readonly text: string };

/** A message under way. A snapshot travels with its contents. */
export type Parcel = { readonly message: Message; readonly texts?: readonly Applied[] };

/** More rounds than any conversation needs; a core that never rests is a fault, not a wait. */
const readyRoundsMax = 10_000;

// No draw: a timeout is always the longest, 2 * election - 1.
const longest = { below: (limit: number): number => limit - 1 };

export class Member {
  readonly id: NodeId;
  readonly #settings: RaftSettings;
  readonly #send: (parcel: Parcel) => void;
  #raft: Raft | undefined;
  #hardState: HardState = { term: 0, vote: 0, commit: 0 };
  #snapshot: SnapshotMeta;
  #snapshotTexts: readonly Applied[] = [];
  #log: Entry[] = [];
  #applied = 0;
  #machine: Applied[] = [];
  #persists = true;
  #held: Ready[] = [];
  readonly #received = new Map<number, readonly Applied[]>();
  #reads: ReadState[] = [];

  constructor(
    id: NodeId,
    configuration: Configuration,
    settings: RaftSettings,
    send: (parcel: Parcel) => void,
  ) {
    this.id = id;
    this.#settings = settings;
    this.#send = send;
    this.#snapshot = { index: 0, term: 0, configuration, configurationIndex: 0 };
    this.restart();
  }

  get isUp(): boolean {
    return this.#raft !== undefined;
  }

  get raft(): Raft {
    return assertPresent(this.#raft, `node ${this.id} is down`);
  }

  get texts(): string[] {
    return this.#machine.map((applied) => applied.text);
  }

  set persists(on: boolean) {
    this.#persists = on;
  }

  takeReads(): ReadState[] {
    const reads = this.#reads;
    this.#reads = [];
    return reads;
  }

  crash(): void {
    this.#raft = undefined;
    this.#held = [];
    this.#received.clear();
    this.#reads = [];
  }

  restart(): void {
    assert(!this.isUp, `node ${this.id} is up`);
    this.#persists = true;
    this.#raft = new Raft(this.id, this.#settings, longest, {
      hardState: this.#hardState,
      snapshot: this.#snapshot,
      entries: this.#log,
      applied: this.#applied,
    });
  }

  receive(parcel: Parcel): void {
    const { message, texts } = parcel;
    if (message.type === "snapshot") this.#received.set(message.snapshot.index, texts ?? []);
    this.raft.step(message);
  }

  /** Everything there is to do. False if there was nothing. */
  ready(): boolean {
    let worked = false;
    if (this.#persists) {
      worked = this.#held.length > 0;
      for (const ready of this.#held.splice(0)) this.#finish(ready);
    }
    for (let round = 0; ; round++) {
      assert(round < readyRoundsMax, `node ${this.id} never comes to rest`);
      const ready = this.raft.ready();
      if (ready === undefined) return worked;
      worked = true;
      this.#reads.push(...ready.readStates);
      for (const message of ready.messages) this.#emit(message);
      if (this.#persists) this.#finish(ready);
      else this.#held.push(ready);
    }
  }

  /** A snapshot at `index`, and the log cut up to it. False if the core declines. */
  compact(index: number): boolean {
    const snapshot = this.raft.takeSnapshot(index);
    if ("accepted" in snapshot || !this.raft.compact(index).accepted) return false;
    this.#snapshot = snapshot;
    this.#snapshotTexts = this.#machine.filter((applied) => applied.index <= index);
    this.#log = this.#log.filter((entry) => entry.index > index);
    return true;
  }

  #finish(ready: Ready): void {
    if (ready.snapshot) this.#install(ready.snapshot);
    replaceTail(this.#log, ready);
    this.#hardState = ready.hardState ?? this.#hardState;
    this.raft.advance({ persisted: ready.number });
    for (const message of ready.messagesAfterSync) this.#emit(message);
    for (const entry of ready.committed) this.#apply(entry);
    this.raft.advance({ applied: this.#applied });
  }

  #install(snapshot: SnapshotMeta): void {
    const texts = this.#received.get(snapshot.index);
    this.#received.clear();
    this.#snapshot = snapshot;
    this.#snapshotTexts = assertPresent(texts, "a snapshot came without its contents");
    this.#machine = [...this.#snapshotTexts];
    this.#applied = snapshot.index;
    this.#log = [];
  }

  #apply(entry: Entry): void {
    assert(entry.index === this.#applied + 1, `${entry.index} applied after ${this.#applied}`);
    this.#applied = entry.index;
    if (entry.kind === "command") this.#machine.push({ index: entry.index, text: textOf(entry) });
  }

  #emit(message: Message): void {
    if (message.type !== "snapshot") this.#send({ message });
    else this.#send({ message, texts: this.#snapshotTexts });
  }
}

/** How a conversation shows an entry. */
export function textOf(entry: Entry): string {
  if (entry.kind === "empty") return "-";
  if (entry.kind === "membership") return `${entry.change.op} ${entry.change.node}`;
  return Buffer.from(entry.data).toString("utf8");
}

function replaceTail(log: Entry[], ready: Ready): void {
  if (ready.snapshot) log.length = 0;
  const first = ready.entries[0];
  if (first === undefined) return;
  const at = log.findIndex((entry) => entry.index >= first.index);
  if (at >= 0) log.length = at;
  log.push(...ready.entries);
}
