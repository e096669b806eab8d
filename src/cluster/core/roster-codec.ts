// The roster's bytes: its commands in the log, its state in snapshots, and what nodes say to each
// other about it (docs/formats/raft.md). One roster has one encoding, so equal bytes are equal state.

import { ByteReader, ByteWriter, isCodedError, type ListenAddress } from "../../base/index.ts";
import type { NewSite, Roster, RosterAnswer, RosterCommand, Site, SiteState } from "./roster.ts";
import { placementsMax, replicasMax, sitesMax } from "./roster.ts";

export const rosterVersion = 1;

const kinds: readonly RosterCommand["kind"][] = [
  ...(["found", "join", "moved", "replicas", "place", "unplace"] as const),
  ...(["activate", "evacuate", "stay", "leave", "forget"] as const),
];
const states: readonly SiteState[] = ["joining", "active", "evacuating", "left"];

export function encodeCommand(command: RosterCommand): Buffer {
  const writer = new ByteWriter().u8(rosterVersion).u8(kinds.indexOf(command.kind));
  switch (command.kind) {
    case "found":
      writer.string(command.cluster).varint(command.replicas).varint(command.sites.length);
      for (const site of command.sites) writeSite(writer.varint(site.node), site);
      break;
    case "join":
      writeSite(writer, command.site);
      break;
    case "moved":
      writeAddress(writer.varint(command.node), command.address);
      writer.string(command.zone);
      break;
    case "replicas":
      writer.varint(command.count);
      break;
    case "place":
      writeNumbers(writer.varint(command.shard), command.nodes);
      break;
    case "unplace":
      writer.varint(command.shard);
      break;
    default:
      writer.varint(command.node);
  }
  return writer.finish();
}

/** Undefined when the bytes are no command that this release knows. */
export function decodeCommand(bytes: Uint8Array): RosterCommand | undefined {
  return whole(bytes, (reader) => {
    if (reader.u8() !== rosterVersion) return undefined;
    return readCommand(reader, kinds[reader.u8()]);
  });
}

/** The whole state, in the order of numbers. */
export function encodeRoster({ cluster, replicas, sites, placements }: Roster): Buffer {
  const writer = new ByteWriter(1_024).u8(rosterVersion).string(cluster).varint(replicas);
  writer.varint(sites.size);
  for (const site of [...sites.values()].sort((one, other) => one.node - other.node)) {
    writer.varint(site.node).u8(states.indexOf(site.state)).varint(site.addressNumber);
    writeSite(writer, site);
  }
  writer.varint(placements.size);
  for (const [shard, nodes] of [...placements].sort(([one], [other]) => one - other)) {
    writeNumbers(writer.varint(shard), nodes);
  }
  return writer.finish();
}

export function decodeRoster(bytes: Uint8Array): Roster | undefined {
  return whole(bytes, (reader) => {
    if (reader.u8() !== rosterVersion) return undefined;
    const [cluster, replicas] = [reader.string(), reader.varint()];
    const sites = readList(reader, sitesMax, (): Site => {
      const node = reader.varint();
      const state = states[reader.u8()] ?? "left";
      return { node, state, addressNumber: reader.varint(), ...readSite(reader) };
    });
    const placements = readList(reader, placementsMax, (): [number, number[]] => {
      const shard = reader.varint();
      return [shard, readList(reader, replicasMax, () => reader.varint())];
    });
    const byNode = new Map(sites.map((site) => [site.node, site]));
    return { cluster, replicas, sites: byNode, placements: new Map(placements) };
  });
}

/** What nodes say to each other: a command for the leader, its answer, and the time. */
export type RosterNote =
  /** 0 asks for it. */
  | { readonly kind: "clock"; readonly id: number; readonly wallUs: number }
  | { readonly kind: "ask"; readonly id: number; readonly command: RosterCommand }
  | { readonly kind: "answer"; readonly id: number; readonly answer: RosterAnswer };

export function encodeRosterNote(note: RosterNote): Buffer {
  if (note.kind === "ask") {
    const writer = new ByteWriter().u8(1).varint(note.id);
    return writer.bytes(encodeCommand(note.command)).finish();
  }
  if (note.kind === "clock") {
    return new ByteWriter().u8(4).varint(note.id).varint(note.wallUs).finish();
  }
  const { answer, id } = note;
  const writer = new ByteWriter().u8(answer.ok ? 2 : 3).varint(id);
  return (answer.ok ? writer.varint(answer.node ?? 0) : writer.string(answer.reason)).finish();
}

export function decodeRosterNote(bytes: Uint8Array): RosterNote | undefined {
  return whole(bytes, (reader): RosterNote | undefined => {
    const kind = reader.u8();
    const id = reader.varint();
    if (kind === 1) {
      const command = decodeCommand(reader.bytes());
      return command && { kind: "ask", id, command };
    }
    if (kind === 4) return { kind: "clock", id, wallUs: reader.varint() };
    if (kind === 3) return { kind: "answer", id, answer: { ok: false, reason: reader.string() } };
    if (kind !== 2) return undefined;
    const node = reader.varint();
    return { kind: "answer", id, answer: node === 0 ? { ok: true } : { ok: true, node } };
  });
}

function readCommand(
  reader: ByteReader,
  kind: RosterCommand["kind"] | undefined,
): RosterCommand | undefined {
  switch (kind) {
    case undefined:
      return undefined;
    case "found": {
      const [cluster, replicas] = [reader.string(), reader.varint()];
      const sites = readList(reader, sitesMax, () => {
        return { node: reader.varint(), ...readSite(reader) };
      });
      return { kind, cluster, replicas, sites };
    }
    case "join":
      return { kind, site: readSite(reader) };
    case "moved":
      return {
        ...{ kind, node: reader.varint(), address: readAddress(reader) },
        zone: reader.string(),
      };
    case "replicas":
      return { kind, count: reader.varint() };
    case "place": {
      const shard = reader.varint();
      return { kind, shard, nodes: readList(reader, sitesMax, () => reader.varint()) };
    }
    case "unplace":
      return { kind, shard: reader.varint() };
    default:
      return { kind, node: reader.varint() };
  }
}

function writeSite(writer: ByteWriter, { siteId, diskId, name, address, zone }: NewSite): void {
  writer.raw(Buffer.from(siteId, "hex")).raw(Buffer.from(diskId, "hex")).string(name);
  writeAddress(writer, address);
  writer.string(zone);
}

function readSite(reader: ByteReader): NewSite {
  const [siteId, diskId] = [readId(reader), readId(reader)];
  const [name, address, zone] = [reader.string(), readAddress(reader), reader.string()];
  return { siteId, diskId, name, address, zone };
}

function writeAddress(writer: ByteWriter, address: ListenAddress): void {
  if ("path" in address) writer.u8(1).string(address.path);
  else writer.u8(0).string(address.host).u16(address.port);
}

function readAddress(reader: ByteReader): ListenAddress {
  const isPath = reader.u8() === 1;
  const place = reader.string();
  return isPath ? { path: place } : { host: place, port: reader.u16() };
}

function readId(reader: ByteReader): string {
  return reader.raw(16).toString("hex");
}

function writeNumbers(writer: ByteWriter, numbers: readonly number[]): void {
  writer.varint(numbers.length);
  for (const number of numbers) writer.varint(number);
}

/** A longer one reads as an empty list, and what follows as what it is not. */
function readList<T>(reader: ByteReader, countMax: number, read: () => T): T[] {
  const count = reader.varint();
  return count > countMax ? [] : Array.from({ length: count }, read);
}

function whole<T>(bytes: Uint8Array, read: (reader: ByteReader) => T | undefined): T | undefined {
  try {
    const reader = new ByteReader(bytes);
    const value = read(reader);
    return reader.remaining === 0 ? value : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
