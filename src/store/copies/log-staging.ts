// Copies the slabs of a log shard that this replica lacks, each into a folder of its own.
//
// Keeps: a sealed slab that is here already, over the same times and with the same hash, is not
// copied; blocks above the checkpoint of the copy are not taken, since their borders may yet change at
// their source; the index of a slab is taken anew by each try, so that it leads to nothing else.

import { isCodedError, joinPath } from "../../base/index.ts";
import type { KvEntry } from "../../kv/index.ts";
import { encodeGenerationRow } from "../core/generation-codec.ts";
import type { Generation } from "../core/generations.ts";
import { DurableKv } from "../durable-kv.ts";
import { storeErrors } from "../errors.ts";
import type { MendParts } from "../mending.ts";
import { rowPrefix, type ShardStore } from "../shard-store.ts";
import { encodeProofs, generationKey, generationRows, proofKey } from "../slab/generation-rows.ts";
import type { Generations } from "../slab/generations.ts";
import { SlabFolders } from "../slab/slab-folders.ts";
import { folderName, type SlabName } from "../slab/slab-name.ts";
import type { SlabProofs } from "../slab/slab-parts.ts";
import type { CopySource, SlabStoreName } from "./copy-source.ts";
import { hashLasting } from "./log-supply.ts";
import { checkpointOf, readNote, type StagedSlab, writeNote } from "./staged.ts";

export type LogStagingParts = {
  readonly dir: string;
  readonly kv: MendParts;
  readonly store: ShardStore;
  readonly generations: Generations;
  readonly phase: (name: string) => void;
};

export type StagedLog = {
  /** As of now: what is kept may be packed anew until the switch. @throws STORE_COPY_GONE. */
  rows(): Promise<readonly KvEntry[]>;
  readonly counts: { slabsKept: number; slabsCopied: number; slabsResumed: number; bytes: number };
};

/** Far above what packing anew reaches meanwhile. */
const packStep = 1_000;
/** Bytes after which what is copied is synced and noted. */
const noteBytes = 16 * 1024 * 1024;
/** Rows of a checkpoint that are the same on all replicas. */
const sharedPrefixes: readonly number[] = [
  rowPrefix.nextGeneration,
  rowPrefix.dropped,
  rowPrefix.writer,
  rowPrefix.evidence,
  rowPrefix.owner,
  rowPrefix.hold,
];

/** Resolves when all is synced. @throws STORE_COPY_GONE, codes of disk and stores: try it again. */
export async function stageLog(
  source: CopySource,
  facts: readonly KvEntry[],
  parts: LogStagingParts,
): Promise<StagedLog> {
  return new LogStaging(source, facts, parts).run();
}

class LogStaging {
  readonly #source: CopySource;
  readonly #facts: readonly KvEntry[];
  readonly #parts: LogStagingParts;
  readonly #place;
  readonly #folders: SlabFolders;
  readonly #counts = { slabsKept: 0, slabsCopied: 0, slabsResumed: 0, bytes: 0 };
  readonly #staged: StagedSlab[] = [];
  readonly #index: number;
  readonly #untilUs: number;

  constructor(source: CopySource, facts: readonly KvEntry[], parts: LogStagingParts) {
    this.#source = source;
    this.#facts = facts;
    this.#parts = parts;
    this.#place = { dir: parts.dir, ...parts.kv };
    this.#folders = new SlabFolders(parts);
    const { index, timeUs } = checkpointOf(facts);
    this.#index = index;
    this.#untilUs = timeUs;
  }

  async run(): Promise<StagedLog> {
    const copied = this.#facts.filter(([key]) => sharedPrefixes.includes(key[0] ?? 0));
    const kept: number[] = [];
    const wanted = generationRows(this.#facts);
    this.#staged.push(...((await readNote(this.#place))?.slabs ?? []));
    for (const slab of [...this.#staged]) {
      if (wanted.every(({ number }) => number !== slab.number)) await this.#forget(slab);
    }
    for (const generation of wanted) {
      if (await this.#isHere(generation)) {
        kept.push(generation.number);
        continue;
      }
      const { slab, proofs } = await this.#copy(generation);
      const row = encodeGenerationRow({ ...generation, pack: slab.pack });
      copied.push([generationKey(slab.number), row]);
      copied.push([proofKey(slab.number), encodeProofs(proofs)]);
    }
    this.#counts.slabsKept = kept.length;
    const rows = async (): Promise<KvEntry[]> => {
      const own = await Promise.all(kept.map((number) => this.#ownRows(number)));
      return [...copied, ...own.flat()];
    };
    return { rows, counts: this.#counts };
  }

  async #isHere({ number, fromUs, toUs }: Generation): Promise<boolean> {
    const { generations } = this.#parts;
    const own = generations.list.find((each) => each.number === number);
    if (own?.state !== "sealed" || toUs === undefined) return false;
    if (own.fromUs !== fromUs || own.toUs !== toUs) return false;
    const slab = await generations.slabOf(number);
    if (slab === undefined) return false;
    return (await hashLasting(slab)) === (await this.#source.hash(number));
  }

  async #ownRows(number: number): Promise<KvEntry[]> {
    const { store } = this.#parts;
    const rows: KvEntry[] = [];
    for (const key of [generationKey(number), proofKey(number)]) {
      const value = await store.get(key);
      if (value !== undefined) rows.push([key, value]);
    }
    if (rows[0]?.[0][0] === rowPrefix.generation) return rows;
    throw storeErrors.copyGone({ what: `generation ${number}, which was here` });
  }

  async #copy(generation: Generation): Promise<{ slab: StagedSlab; proofs: SlabProofs }> {
    const begun = await this.#begin(generation);
    if (begun.proofs !== undefined || begun.after.length > 0) this.#counts.slabsResumed++;
    try {
      const copied = await this.#copyStores(begun, generation);
      this.#counts.slabsCopied++;
      this.#parts.phase("copy.slab");
      return copied;
    } catch (error) {
      // A crash has damaged it: it begins anew with the next try.
      if (isCodedError(error, "KV_CORRUPT")) await this.#forget(begun);
      throw error;
    }
  }

  async #copyStores(
    begun: StagedSlab,
    { toUs }: Generation,
  ): Promise<{ slab: StagedSlab; proofs: SlabProofs }> {
    if (begun.proofs !== undefined) return { slab: begun, proofs: await this.#proveAgain(begun) };
    let slab = begun;
    const blocks = await this.#copyStore(slab, "blocks", async (after) => {
      slab = { ...slab, after };
      await this.#note(slab);
    });
    await this.#parts.kv.driver.destroy(this.#pathOf(slab, "index"));
    const index = await this.#copyStore(slab, "index", async () => undefined);
    const proofs = { blocks, index };
    if (toUs !== undefined) await this.#note({ ...slab, proofs });
    return { slab, proofs };
  }

  /** @throws KV_CORRUPT: it does not hold what it did. */
  async #proveAgain(slab: StagedSlab): Promise<SlabProofs> {
    const prove = async (store: SlabStoreName): Promise<Uint8Array> => {
      const proof = slab.proofs?.[store];
      const kv = await DurableKv.open(this.#pathOf(slab, store), { proof }, this.#parts.kv);
      try {
        return await kv.sync();
      } finally {
        await kv.close();
      }
    };
    return { blocks: await prove("blocks"), index: await prove("index") };
  }

  /** What there is of it from a try before, or nothing. */
  async #begin(generation: Generation): Promise<StagedSlab> {
    const { number, pack, fromUs, toUs = 0 } = generation;
    const origin = `${this.#source.id}/${pack}`;
    const known = this.#staged.find((each) => each.number === number);
    const isSame = known?.fromUs === fromUs && known.toUs === toUs;
    if (isSame && known.proofs !== undefined) return known;
    // It may have ended since: its blocks stay what they were.
    const goesOn = known?.fromUs === fromUs && known.origin === origin;
    if (goesOn && known.proofs === undefined) return { ...known, toUs };
    const own = this.#parts.generations.list.find((each) => each.number === number);
    const packs = [pack, own?.pack ?? 0, known?.pack ?? 0];
    const after = Buffer.alloc(0);
    const name = { number, pack: Math.max(...packs) + packStep };
    await this.#folders.remove(name);
    const { disk } = this.#parts.kv;
    await disk.makeDir(joinPath(this.#parts.dir, folderName(name)));
    await disk.syncDir(this.#parts.dir);
    const slab = { ...name, fromUs, toUs, origin, proofs: undefined, after };
    // The note never names a folder that is gone.
    await this.#note(slab);
    if (known !== undefined) await this.#folders.remove(known);
    return slab;
  }

  /** Resolves with the proof of what is in it. */
  async #copyStore(
    slab: StagedSlab,
    store: SlabStoreName,
    onSynced: (after: Uint8Array) => Promise<void>,
  ): Promise<Uint8Array> {
    const path = this.#pathOf(slab, store);
    const kv = await DurableKv.open(path, {}, this.#parts.kv);
    try {
      const name = this.#nameAtSource(slab);
      let after: Uint8Array | undefined =
        store === "blocks" && slab.after.length > 0 ? slab.after : undefined;
      for (let waitingBytes = 0; ; ) {
        const page = await this.#source.slab(name, store, after);
        const rows =
          store === "blocks" ? page.rows.filter(([key]) => this.#isFinal(key)) : page.rows;
        await kv.write((batch) => {
          for (const [key, value] of rows) batch.put(key, value);
        });
        for (const [key, value] of rows) waitingBytes += key.length + value.length;
        const isEnd = page.isEnd || rows.length < page.rows.length;
        after = rows.at(-1)?.[0] ?? after;
        if (!isEnd && waitingBytes < noteBytes) continue;
        const proof = await kv.sync();
        this.#counts.bytes += waitingBytes;
        waitingBytes = 0;
        if (after !== undefined) await onSynced(after);
        this.#parts.phase("copy.synced");
        if (isEnd) return proof;
      }
    } finally {
      await kv.close();
    }
  }

  /** Up to the checkpoint: what is above it may be written once more in other blocks. */
  #isFinal(key: Uint8Array): boolean {
    return Number(Buffer.from(key).readBigUInt64BE(0)) <= this.#untilUs;
  }

  #nameAtSource({ number }: SlabName): SlabName {
    const found = generationRows(this.#facts).find((each) => each.number === number);
    return { number, pack: found?.pack ?? 0 };
  }

  async #note(slab: StagedSlab): Promise<void> {
    const at = this.#staged.findIndex((each) => each.number === slab.number);
    if (at < 0) this.#staged.push(slab);
    else this.#staged[at] = slab;
    await writeNote(this.#place, { index: this.#index, slabs: this.#staged });
  }

  async #forget(slab: StagedSlab): Promise<void> {
    const at = this.#staged.findIndex((each) => each.number === slab.number);
    if (at >= 0) this.#staged.splice(at, 1);
    await writeNote(this.#place, { index: this.#index, slabs: this.#staged });
    await this.#folders.remove(slab);
  }

  #pathOf(slab: SlabName, store: SlabStoreName): string {
    return joinPath(this.#parts.dir, folderName(slab), store);
  }
}
