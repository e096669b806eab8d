// Runs: consecutive plain PUBLISH frames of one topic, located together and handed on without an
// object for each.
//
// Plain is: QoS 0 or 1, no DUP, no RETAIN, a topic in full, and in MQTT 5 no properties. Whatever else
// a frame is, also a faulty one, ends the run before it: it is read by `PublishReader`, which knows
// every rule. So a run holds only frames that `PublishReader` would have taken.
//
// A run and the bytes it speaks of are valid during the call that hands it out: there is one scratch
// run for each `RunReader`.

import type { DecodeContext } from "./decode-context.ts";
import type { MqttVersion } from "./packets.ts";
import { readTopicName, type StoredFrame } from "./publish-frame.ts";
import { type KnownTopic, TopicTable } from "./topic-table.ts";

/** Frames in one run; a read of 64 KiB rarely holds more. */
export const runFramesMax = 1024;

const plainQos0 = 0x30;
const plainQos1 = 0x32;
const pubackFirst = 0x40;
const ackBytes = 4;
const nothing = Buffer.alloc(0);

export class PublishRun {
  bytes: Buffer = nothing;
  /** Of the first frame, and behind the last: frames lie back to back. */
  start = 0;
  end = 0;
  count = 0;
  qos: 0 | 1 = 0;
  version: MqttVersion = 4;
  topic: KnownTopic;
  /** Bytes of the largest frame. */
  frameBytesMax = 0;
  /** By frame; `starts[count]` is `end`. */
  readonly starts = new Uint32Array(runFramesMax + 1);
  /** Behind the topic: of the packet id at QoS 1. */
  readonly idOffsets = new Uint32Array(runFramesMax);
  /** 0 at QoS 0. */
  readonly packetIds = new Uint16Array(runFramesMax);

  constructor(topic: KnownTopic) {
    this.topic = topic;
  }

  bodyStart(index: number): number {
    return (this.idOffsets[index] as number) - this.topic.bytes.length - 2;
  }

  /** A view, valid as long as the run. */
  frame(index: number): Buffer {
    return this.bytes.subarray(this.starts[index], this.starts[index + 1]);
  }

  stored(index: number): StoredFrame {
    return { bytes: this.frame(index), version: this.version, expiryOffset: 0 };
  }
}

/** Packet ids of consecutive PUBACKs that say nothing but success. */
export class PubackRun {
  count = 0;
  end = 0;
  readonly packetIds = new Uint16Array(runFramesMax);

  /** Reads as many as there are at `offset`; `count` 0 where the next packet is another one. */
  read(bytes: Buffer, offset: number): void {
    const { packetIds } = this;
    let count = 0;
    let at = offset;
    while (count < runFramesMax && at + ackBytes <= bytes.length) {
      if (bytes[at] !== pubackFirst || bytes[at + 1] !== 2) break;
      const packetId = ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number);
      if (packetId === 0) break;
      packetIds[count++] = packetId;
      at += ackBytes;
    }
    this.count = count;
    this.end = at;
  }
}

export function isPlainPublish(firstByte: number): boolean {
  return firstByte === plainQos0 || firstByte === plainQos1;
}

/** Reads runs, for all connections of an owner: topics are known by their bytes to all of them. */
export class RunReader {
  readonly #topics: TopicTable;
  #run: PublishRun | undefined;

  constructor(topics = new TopicTable()) {
    this.#topics = topics;
  }

  /**
   * The run that begins at `offset`, where a plain first byte stands; undefined where its first frame
   * is not plain, not whole, or larger than `sizeBytesMax`. `last`: a topic to be tried first.
   */
  read(
    bytes: Buffer,
    offset: number,
    sizeBytesMax: number,
    context: DecodeContext,
    last: KnownTopic | undefined,
  ): PublishRun | undefined {
    const topic = this.#topicAt(bytes, offset, context, last);
    if (topic === undefined) return undefined;
    let run = this.#run;
    if (run === undefined) {
      run = new PublishRun(topic);
      this.#run = run;
    }
    run.bytes = bytes;
    run.start = offset;
    run.topic = topic;
    run.version = context.version;
    run.qos = bytes[offset] === plainQos1 ? 1 : 0;
    collect(run, sizeBytesMax);
    return run.count === 0 ? undefined : run;
  }

  /** The topic of the frame, if it is one that may stand there. */
  #topicAt(
    bytes: Buffer,
    offset: number,
    context: DecodeContext,
    last: KnownTopic | undefined,
  ): KnownTopic | undefined {
    if (offset + 5 > bytes.length) return undefined;
    const bodyStart = offset + ((bytes[offset + 1] as number) < 0x80 ? 2 : 3);
    const length = ((bytes[bodyStart] as number) << 8) | (bytes[bodyStart + 1] as number);
    const start = bodyStart + 2;
    const end = start + length;
    if (length === 0 || end > bytes.length) return undefined;
    if (last?.equals(bytes, start, end)) return last;
    const known = this.#topics.find(bytes, start, end);
    if (known !== undefined) return known;
    try {
      const text = readTopicName(bytes, start, end, context);
      return this.#topics.add(text, bytes, start, end);
    } catch {
      // `PublishReader` finds the same fault, and tells it.
      return undefined;
    }
  }
}

/** Fills the tables of the run with the frames that belong to it. */
function collect(run: PublishRun, sizeBytesMax: number): void {
  const { bytes, starts, idOffsets, packetIds, topic } = run;
  const limit = bytes.length;
  const first = bytes[run.start];
  const topicLength = topic.bytes.length;
  const idBytes = run.qos === 1 ? 2 : 0;
  const fixedBytes = 2 + topicLength + idBytes + (run.version === 5 ? 1 : 0);
  let count = 0;
  let largest = 0;
  let at = run.start;
  while (count < runFramesMax && at + 3 <= limit && bytes[at] === first) {
    let body = at + 2;
    let remaining = bytes[at + 1] as number;
    if (remaining >= 0x80) {
      const high = bytes[at + 2] as number;
      // Three bytes of length, or two where one would do.
      if (high >= 0x80 || high === 0) break;
      remaining = (remaining & 0x7f) | (high << 7);
      body++;
    }
    const end = body + remaining;
    if (end > limit || end - at > sizeBytesMax || remaining < fixedBytes) break;
    if ((((bytes[body] as number) << 8) | (bytes[body + 1] as number)) !== topicLength) break;
    const idAt = body + 2 + topicLength;
    if (count > 0 && !topic.equals(bytes, body + 2, idAt)) break;
    if (run.version === 5 && bytes[idAt + idBytes] !== 0) break;
    if (idBytes > 0) {
      const packetId = ((bytes[idAt] as number) << 8) | (bytes[idAt + 1] as number);
      if (packetId === 0) break;
      packetIds[count] = packetId;
    } else {
      packetIds[count] = 0;
    }
    starts[count] = at;
    idOffsets[count] = idAt;
    if (end - at > largest) largest = end - at;
    count++;
    at = end;
  }
  starts[count] = at;
  run.count = count;
  run.end = at;
  run.frameBytesMax = largest;
}
