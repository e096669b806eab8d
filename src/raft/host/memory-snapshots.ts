// The twin of disk-snapshots.ts in memory: for tests, and for groups whose state need not outlive
// the process.

import { asBuffer, crc32 } from "../../base/index.ts";
import { raftErrors } from "../errors.ts";
import { cutChunks, encodeManifest, type SnapshotManifest } from "./manifest.ts";
import type { SnapshotReader, SnapshotReceiver, SnapshotStore } from "./ports.ts";

type Stored = { readonly manifest: SnapshotManifest; readonly chunks: readonly Buffer[] };

export function createMemorySnapshots(settings: { readonly chunkBytes: number }): SnapshotStore {
  const stored = new Map<number, Stored>();
  const incoming = new Map<number, { readonly key: Buffer; readonly chunks: Buffer[] }>();
  return {
    latest: async (group) => {
      const found = stored.get(group);
      return found && openStored(found);
    },
    write: async (head, pieces) => {
      const chunks: Buffer[] = [];
      for await (const chunk of cutChunks(pieces, settings.chunkBytes)) chunks.push(chunk);
      const sums = chunks.map((chunk) => ({ sizeBytes: chunk.length, crc: crc32(chunk) }));
      const manifest = { ...head, chunks: sums };
      stored.set(head.group, { manifest, chunks });
      return manifest;
    },
    receive: async (manifest) => {
      const key = encodeManifest(manifest);
      const known = incoming.get(manifest.group);
      const chunks = known?.key.equals(key) ? known.chunks : [];
      incoming.set(manifest.group, { key, chunks });
      return receiveInto(manifest, chunks, () => {
        stored.set(manifest.group, { manifest, chunks });
        incoming.delete(manifest.group);
      });
    },
  };
}

function openStored({ manifest, chunks }: Stored): SnapshotReader {
  return {
    manifest,
    read: async (number) => {
      const chunk = chunks[number];
      if (chunk !== undefined) return chunk;
      const { group } = manifest;
      throw raftErrors.snapshotDamaged({ group, path: "memory", reason: `no chunk ${number}` });
    },
    close: async () => undefined,
  };
}

function receiveInto(
  manifest: SnapshotManifest,
  chunks: Buffer[],
  commit: () => void,
): SnapshotReceiver {
  return {
    manifest,
    get next() {
      return chunks.length;
    },
    add: async (number, data) => {
      const wanted = manifest.chunks[number];
      if (number !== chunks.length || wanted?.sizeBytes !== data.length) return false;
      if (crc32(asBuffer(data)) !== wanted.crc) return false;
      chunks.push(Buffer.from(data));
      return true;
    },
    commit: async () => commit(),
    close: async () => undefined,
  };
}
