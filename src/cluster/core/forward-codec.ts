// What a node and the leader of a shard say to each other about requests (docs/formats/raft.md).

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import type { ShardCall, ShardRequest } from "../../store/index.ts";
import {
  NoRequest,
  readCall,
  readFlags,
  readList,
  readRequest,
  writeCall,
  writeRequest,
} from "./request-codec.ts";

/** When a request was decided, and why it did nothing; 0: it did. */
export type Verdict = { readonly timeUs: number; readonly refusal: number };

export type ForwardMessage =
  /** The sender asks to be opened as a writer; the token names this asking. */
  | { readonly kind: "open"; readonly token: number; readonly name: string }
  | { readonly kind: "opened"; readonly token: number; readonly epoch: number }
  | {
      readonly kind: "batch";
      readonly name: string;
      readonly epoch: number;
      /** Sequence of the first request. */
      readonly first: number;
      readonly requests: readonly ShardRequest[];
    }
  /**
   * Verdicts on the requests from `first` on, as far as they are decided. `fenced`: the leader does
   * not know the writer.
   */
  | {
      readonly kind: "answers";
      readonly epoch: number;
      readonly first: number;
      readonly verdicts: readonly Verdict[];
      readonly fenced: boolean;
    }
  /** What may be done twice; `name` and `id` name the asking. */
  | {
      readonly kind: "call";
      readonly name: string;
      readonly id: number;
      readonly call: ShardCall;
    }
  /** It is done, and applied by `timeUs`. */
  | {
      readonly kind: "returned";
      readonly id: number;
      readonly value: number;
      readonly timeUs: number;
    };

const kinds = { open: 1, opened: 2, batch: 3, answers: 4, call: 5, returned: 6 } as const;

export function encodeForward(message: ForwardMessage): Buffer {
  const writer = new ByteWriter(256).u8(kinds[message.kind]);
  switch (message.kind) {
    case "open":
      writer.varint(message.token).string(message.name);
      break;
    case "opened":
      writer.varint(message.token).varint(message.epoch);
      break;
    case "batch":
      writer.string(message.name).varint(message.epoch).varint(message.first);
      writer.varint(message.requests.length);
      for (const request of message.requests) writeRequest(writer, request);
      break;
    case "answers":
      writer
        .varint(message.epoch)
        .varint(message.first)
        .u8(message.fenced ? 1 : 0);
      writer.varint(message.verdicts.length);
      for (const { timeUs, refusal } of message.verdicts) writer.varint(timeUs).varint(refusal);
      break;
    case "call":
      writeCall(writer.string(message.name).varint(message.id), message.call);
      break;
    case "returned":
      writer.varint(message.id).varint(message.value).varint(message.timeUs);
      break;
  }
  return writer.finish();
}

/** Undefined when the bytes are no such message. Frames and values are views of them. */
export function decodeForward(bytes: Uint8Array): ForwardMessage | undefined {
  try {
    const reader = new ByteReader(bytes);
    const message = readMessage(reader);
    return reader.remaining === 0 ? message : undefined;
  } catch (error) {
    if (error instanceof NoRequest) return undefined;
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}

function readMessage(reader: ByteReader): ForwardMessage | undefined {
  switch (reader.u8()) {
    case kinds.open:
      return { kind: "open", token: reader.varint(), name: reader.string() };
    case kinds.opened:
      return { kind: "opened", token: reader.varint(), epoch: reader.varint() };
    case kinds.batch: {
      const place = { name: reader.string(), epoch: reader.varint(), first: reader.varint() };
      return { kind: "batch", ...place, requests: readList(reader, () => readRequest(reader)) };
    }
    case kinds.answers: {
      const place = { epoch: reader.varint(), first: reader.varint() };
      const fenced = readFlags(reader, 1) === 1;
      const verdicts = readList(reader, () => {
        return { timeUs: reader.varint(), refusal: reader.varint() };
      });
      return { kind: "answers", ...place, fenced, verdicts };
    }
    case kinds.call: {
      const asking = { name: reader.string(), id: reader.varint() };
      return { kind: "call", ...asking, call: readCall(reader) };
    }
    case kinds.returned:
      return {
        ...{ kind: "returned", id: reader.varint(), value: reader.varint() },
        timeUs: reader.varint(),
      };
    default:
      return undefined;
  }
}
