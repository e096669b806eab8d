// What a node and the leader of a shard say to each other about appends (docs/formats/raft.md).

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import type { AppendRequest, TtvForm } from "../../store/index.ts";

/** Its repeats are known by the writer of the node that sends it, so it has no mark of its own. */
export type ForwardRequest = Omit<AppendRequest, "evidence" | "writer">;

export type ForwardMessage =
  /** The sender asks to be opened as a writer; the token names this asking. */
  | {
      readonly kind: "open";
      readonly token: number;
      readonly name: string;
      /** Of the first request, which say what the shard is for. */
      readonly topic: string;
      readonly publisher: string;
    }
  | { readonly kind: "opened"; readonly token: number; readonly epoch: number }
  | {
      readonly kind: "batch";
      readonly name: string;
      readonly epoch: number;
      /** Sequence of the first request. */
      readonly first: number;
      readonly requests: readonly ForwardRequest[];
    }
  /**
   * Commit times of the requests from `first` on, as far as they are stored. `fenced`: the leader does
   * not know the writer.
   */
  | {
      readonly kind: "answers";
      readonly epoch: number;
      readonly first: number;
      readonly timesUs: readonly number[];
      readonly fenced: boolean;
    };

const kinds = { open: 1, opened: 2, batch: 3, answers: 4 } as const;
/** Requests of one batch; far above what a node sends. */
const requestsMax = 65_536;
const forms: readonly TtvForm[] = ["raw", "v4", "v5"];

export function encodeForward(message: ForwardMessage): Buffer {
  const writer = new ByteWriter(256).u8(kinds[message.kind]);
  switch (message.kind) {
    case "open":
      writer.varint(message.token).string(message.name);
      return writer.string(message.topic).string(message.publisher).finish();
    case "opened":
      return writer.varint(message.token).varint(message.epoch).finish();
    case "batch": {
      const { name, epoch, first, requests } = message;
      writer.string(name).varint(epoch).varint(first).varint(requests.length);
      for (const request of requests) writeRequest(writer, request);
      return writer.finish();
    }
    case "answers": {
      const { epoch, first, timesUs, fenced } = message;
      writer
        .varint(epoch)
        .varint(first)
        .u8(fenced ? 1 : 0)
        .varint(timesUs.length);
      for (const timeUs of timesUs) writer.varint(timeUs);
      return writer.finish();
    }
  }
}

/** Undefined when the bytes are no such message. Frames are views of them. */
export function decodeForward(bytes: Uint8Array): ForwardMessage | undefined {
  try {
    const reader = new ByteReader(bytes);
    const message = readMessage(reader);
    return reader.remaining === 0 ? message : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}

function readMessage(reader: ByteReader): ForwardMessage | undefined {
  switch (reader.u8()) {
    case kinds.open:
      return {
        ...{ kind: "open", token: reader.varint(), name: reader.string() },
        ...{ topic: reader.string(), publisher: reader.string() },
      };
    case kinds.opened:
      return { kind: "opened", token: reader.varint(), epoch: reader.varint() };
    case kinds.batch: {
      const place = { name: reader.string(), epoch: reader.varint(), first: reader.varint() };
      const requests = readList(reader, readRequest);
      return requests && { kind: "batch", ...place, requests };
    }
    case kinds.answers: {
      const place = { epoch: reader.varint(), first: reader.varint(), fenced: reader.u8() === 1 };
      const timesUs = readList(reader, (each) => each.varint());
      return timesUs && { kind: "answers", ...place, timesUs };
    }
    default:
      return undefined;
  }
}

function readList<T>(reader: ByteReader, read: (reader: ByteReader) => T): T[] | undefined {
  const count = reader.varint();
  if (count > requestsMax) return undefined;
  return Array.from({ length: count }, () => read(reader));
}

/** What a request takes of a batch, about. */
export function forwardBytes({ topic, publisher, frame }: ForwardRequest): number {
  return 3 * (topic.length + publisher.length) + frame.length + 64;
}

const retainFlag = 1;
const keepFlag = 2;

function writeRequest(writer: ByteWriter, request: ForwardRequest): void {
  const { topic, publisher, form, qos, retain, keep, expiryUs, expiryOffset, frame } = request;
  const flags = (retain ? retainFlag : 0) | (keep ? keepFlag : 0);
  writer.u8(flags).string(topic).string(publisher).u8(forms.indexOf(form)).u8(qos);
  writer.varint(expiryUs).varint(expiryOffset).bytes(frame);
}

function readRequest(reader: ByteReader): ForwardRequest {
  const flags = reader.u8();
  const [topic, publisher] = [reader.string(), reader.string()];
  const form = forms[reader.u8()] ?? "raw";
  const qos = (reader.u8() & 3) as 0 | 1 | 2;
  const [expiryUs, expiryOffset, frame] = [reader.varint(), reader.varint(), reader.bytes()];
  const retain = (flags & retainFlag) !== 0;
  const keep = (flags & keepFlag) !== 0;
  return { topic, publisher, form, qos, retain, keep, expiryUs, expiryOffset, frame };
}
