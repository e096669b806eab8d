// The block: up to 256 TTVs of one stream as one value of a slab (docs/formats/block.md).
//
// `encodeBlock` writes any batch; `decodeBlock` checks the CRC before it looks at anything else, then
// every count, id and offset once, so that the view's accessors need no checks. Strings are made when
// they are asked for. Which stream a block belongs to stands in its key, not in it.

import { asBuffer, assert, ByteReader, ByteWriter, crc32, isCodedError } from "../../base/index.ts";
import { nextNumber, type Place, type Word } from "../core/place.ts";
import { storeErrors } from "../errors.ts";
import { areFlags } from "../types.ts";
import { type BlockParts, BlockView, type Texts } from "./block-view.ts";
import { type TtvBatch, varyingWords } from "./ttv-view.ts";

const blockVersion = 1;
const expiryFlag = 0b0000_0001;
const headerBytes = 20;
const framesStartAt = 12;
const crcBytes = 4;
const UINT32 = 0x1_0000_0000;
/** Most TTVs of a block: two bytes. Writers seal far below. */
export const blockTtvsMax = 0xffff;

/** REQUIRES: at least one TTV; times grow strictly. */
export function encodeBlock(batch: TtvBatch): Buffer {
  const count = batch.count;
  assert(count > 0 && count <= blockTtvsMax, `a block of ${count} TTVs`);
  const frames = batch.frames().subarray(0, batch.frameStart(count));
  const expires = anyExpires(batch);
  const writer = new ByteWriter(frames.length + 1024 + 16 * count);
  writer
    .u8(blockVersion)
    .u8(expires ? expiryFlag : 0)
    .u16(count)
    .u64(batch.timeUs(0));
  writer.u32(0).u32(frames.length);
  writeDictionaries(writer, batch);
  writeTables(writer, batch);
  if (expires) writeExpiry(writer, batch);
  writer.patchU32(framesStartAt, writer.length).raw(frames);
  writer.u32(crc32(writer.finish()));
  return writer.finish();
}

/**
 * A view over the bytes, which must not change while it is used. With `levels`, the number of varying
 * levels of the stream's structure, each topic must have that many.
 * @throws STORE_BLOCK_CORRUPT, STORE_VERSION_UNKNOWN.
 */
export function decodeBlock(bytes: Uint8Array, levels?: number): BlockView {
  const block = asBuffer(bytes);
  const body = block.length - crcBytes;
  if (body < headerBytes) throw corrupt(`${block.length} bytes are too few`);
  const [expected, actual] = [block.readUInt32BE(body), crc32(block.subarray(0, body))];
  if (expected !== actual) throw corrupt(`checksum ${hex(actual)} is not ${hex(expected)}`);
  try {
    return new BlockView(readBlock(block.subarray(0, body), levels));
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_")) throw corrupt(error.message);
    throw error;
  }
}

function writeDictionaries(writer: ByteWriter, batch: TtvBatch): void {
  const words: string[] = [];
  const topics = new Uint32Array(batch.topicCount + varyingWords(batch));
  if (batch.places === undefined) listTexts(batch, words, topics);
  else listWords(batch.places, words, topics);
  writer.varint(words.length);
  for (const word of words) writer.string(word);
  writer.varint(batch.topicCount);
  for (let at = 0; at < topics.length; at++) writer.varint(topics[at] as number);
  writer.varint(batch.publisherCount);
  for (let id = 0; id < batch.publisherCount; id++) writer.string(batch.publisher(id));
}

/** Each text once to `words`, and to `topics` how many a topic has, and their ids. */
function listTexts(batch: TtvBatch, words: string[], topics: Uint32Array): void {
  const ids = new Map<string, number>();
  let at = 0;
  for (let topic = 0; topic < batch.topicCount; topic++) {
    const texts = batch.varying(topic);
    topics[at++] = texts.length;
    for (const text of texts) {
      let id = ids.get(text);
      if (id === undefined) {
        id = words.push(text) - 1;
        ids.set(text, id);
      }
      topics[at++] = id;
    }
  }
}

/** The same where a text is one object: no table has to be asked. */
function listWords(places: readonly Place[], words: string[], topics: Uint32Array): void {
  const dictionary = nextNumber();
  let at = 0;
  for (const place of places) {
    const ofTopic = place.words as readonly Word[];
    topics[at++] = ofTopic.length;
    for (const word of ofTopic) {
      if (word.dictionary !== dictionary) {
        word.dictionary = dictionary;
        word.id = words.push(word.text) - 1;
      }
      topics[at++] = word.id;
    }
  }
}

function writeTables(writer: ByteWriter, batch: TtvBatch): void {
  const count = batch.count;
  for (let index = 1; index < count; index++) {
    writer.varint(batch.timeUs(index) - batch.timeUs(index - 1));
  }
  for (let index = 0; index < count; index++) writer.u8(batch.flags(index));
  for (let index = 0; index < count; index++) writer.varint(batch.topicId(index));
  for (let index = 0; index < count; index++) writer.varint(batch.publisherId(index));
  for (let index = 0; index < count; index++) {
    writer.varint(batch.frameStart(index + 1) - batch.frameStart(index));
  }
}

function writeExpiry(writer: ByteWriter, batch: TtvBatch): void {
  for (let index = 0; index < batch.count; index++) {
    writer.varint(batch.expiryUs(index)).varint(batch.expiryOffset(index));
  }
}

function anyExpires(batch: TtvBatch): boolean {
  for (let index = 0; index < batch.count; index++) {
    if (batch.expiryUs(index) !== 0 || batch.expiryOffset(index) !== 0) return true;
  }
  return false;
}

function readBlock(body: Buffer, levels: number | undefined): BlockParts {
  const reader = new ByteReader(body);
  checkVersion(reader.u8());
  const blockFlags = reader.u8();
  if ((blockFlags & ~expiryFlag) !== 0) throw corrupt(`block flags ${blockFlags}`);
  const count = reader.u16();
  const firstTimeUs = reader.u64();
  const framesStart = reader.u32();
  const framesBytes = reader.u32();
  if (count === 0) throw corrupt("no TTVs");
  if (framesStart + framesBytes !== body.length) throw corrupt("frames do not end the block");
  const tables = new ByteReader(body.subarray(0, framesStart), headerBytes);
  const words = readTexts(tables, body, "words");
  const topics = readTopics(tables, words.bounds.length / 2, levels);
  const publishers = readTexts(tables, body, "publishers");
  const rows = allocateRows(count);
  readTimes(tables, firstTimeUs, rows.times);
  const flags = readFlags(tables, count);
  readIds(tables, topics.topicStarts.length, rows.topicIds);
  readIds(tables, publishers.bounds.length / 2, rows.publisherIds);
  readFrameStarts(tables, framesBytes, rows.frameStarts);
  const expiry = (blockFlags & expiryFlag) !== 0 ? readExpiry(tables, rows.frameStarts) : noExpiry;
  if (tables.remaining > 0) throw corrupt(`${tables.remaining} bytes before the frames`);
  const frames = body.subarray(framesStart);
  return { count, frames, words, publishers, flags, ...rows, ...topics, ...expiry };
}

type BlockRows = Pick<BlockParts, "times" | "frameStarts" | "topicIds" | "publisherIds">;

/** In one piece of memory: each piece by itself costs more than what it holds. */
function allocateRows(count: number): BlockRows {
  const startsAt = 8 * count;
  const topicsAt = startsAt + 4 * (count + 1);
  const publishersAt = topicsAt + 2 * count;
  const memory = new ArrayBuffer(publishersAt + 2 * count);
  return {
    times: new Float64Array(memory, 0, count),
    frameStarts: new Uint32Array(memory, startsAt, count + 1),
    topicIds: new Uint16Array(memory, topicsAt, count),
    publisherIds: new Uint16Array(memory, publishersAt, count),
  };
}

function checkVersion(version: number): void {
  if (version === blockVersion) return;
  if (version === 0) throw corrupt("version 0");
  throw storeErrors.versionUnknown({ row: "block", version, versionMax: blockVersion });
}

function readTexts(reader: ByteReader, body: Buffer, what: string): Texts {
  const count = reader.varint();
  if (count > reader.remaining) throw corrupt(`${count} ${what}`);
  const bounds = new Uint32Array(2 * count);
  for (let at = 0; at < bounds.length; at += 2) {
    const sizeBytes = reader.varint();
    bounds[at] = reader.offset;
    reader.skip(sizeBytes);
    bounds[at + 1] = reader.offset;
  }
  return { bytes: body, bounds };
}

type BlockTopics = Pick<BlockParts, "topicWords" | "topicStarts">;

function readTopics(reader: ByteReader, wordCount: number, levels?: number): BlockTopics {
  const count = reader.varint();
  if (count > reader.remaining) throw corrupt(`${count} topics`);
  return levels === undefined
    ? readOddTopics(reader, count, wordCount)
    : readEvenTopics(reader, count, { wordCount, levels });
}

/** All have as many words. */
function readEvenTopics(
  reader: ByteReader,
  count: number,
  { wordCount, levels }: { readonly wordCount: number; readonly levels: number },
): BlockTopics {
  const row = levels + 1;
  if (count * row > reader.remaining) throw corrupt(`${count} topics of ${levels} levels`);
  const topicWords = new Uint32Array(count * row);
  if (reader.varints(topicWords) >= UINT32) throw corrupt("a topic's number is too large");
  const topicStarts = new Uint32Array(count);
  for (let topic = 0; topic < count; topic++) {
    const start = topic * row;
    const size = topicWords[start] as number;
    if (size !== levels) throw corrupt(`${size} levels vary, not ${levels}`);
    for (let at = start + 1; at < start + row; at++) checkWord(topicWords[at] as number, wordCount);
    topicStarts[topic] = start;
  }
  return { topicWords, topicStarts };
}

function readOddTopics(reader: ByteReader, count: number, wordCount: number): BlockTopics {
  const topicStarts = new Uint32Array(count);
  // Each number is a byte at least.
  const topicWords = new Uint32Array(reader.remaining);
  let taken = 0;
  for (let topic = 0; topic < count; topic++) {
    const size = reader.varint();
    if (size > reader.remaining) throw corrupt(`a topic of ${size} varying levels`);
    topicStarts[topic] = taken;
    topicWords[taken++] = size;
    for (let level = 0; level < size; level++) {
      const id = reader.varint();
      checkWord(id, wordCount);
      topicWords[taken++] = id;
    }
  }
  return { topicWords: topicWords.slice(0, taken), topicStarts };
}

function checkWord(id: number, wordCount: number): void {
  if (id >= wordCount) throw corrupt(`word id ${id} of ${wordCount}`);
}

function readTimes(reader: ByteReader, firstTimeUs: number, times: Float64Array): void {
  reader.varints(times, 1);
  let timeUs = firstTimeUs;
  times[0] = timeUs;
  for (let index = 1; index < times.length; index++) {
    const deltaUs = times[index] as number;
    timeUs += deltaUs;
    if (deltaUs === 0 || timeUs > Number.MAX_SAFE_INTEGER) throw corrupt(`time ${index}`);
    times[index] = timeUs;
  }
}

function readFlags(reader: ByteReader, count: number): Uint8Array {
  const flags = reader.raw(count);
  let former = -1;
  for (let index = 0; index < count; index++) {
    const value = flags[index] as number;
    if (value !== former && !areFlags(value)) throw corrupt(`flags ${value}`);
    former = value;
  }
  return flags;
}

function readIds(reader: ByteReader, limit: number, ids: Uint16Array): void {
  const max = reader.varints(ids);
  if (max >= limit) throw corrupt(`dictionary id ${max} of ${limit}`);
}

function readFrameStarts(reader: ByteReader, framesBytes: number, starts: Uint32Array): void {
  const max = reader.varints(starts, 1);
  let end = 0;
  for (let index = 1; index < starts.length; index++) {
    end += starts[index] as number;
    starts[index] = end;
  }
  if (end !== framesBytes || max > framesBytes) {
    throw corrupt(`frames end at ${end} of ${framesBytes}`);
  }
}

type BlockExpiry = Pick<BlockParts, "expiries" | "expiryOffsets">;

const noExpiry: BlockExpiry = { expiries: undefined, expiryOffsets: undefined };
/** The seconds left are four bytes in the frame. */
const secondsBytes = 4;

function readExpiry(reader: ByteReader, frameStarts: Uint32Array): BlockExpiry {
  const count = frameStarts.length - 1;
  const expiries = new Float64Array(count);
  const expiryOffsets = new Uint32Array(count);
  for (let index = 0; index < count; index++) {
    expiries[index] = reader.varint();
    const offset = reader.varint();
    const frameBytes = (frameStarts[index + 1] as number) - (frameStarts[index] as number);
    if (offset > 0 && offset + secondsBytes > frameBytes) throw corrupt(`expiry offset ${offset}`);
    expiryOffsets[index] = offset;
  }
  return { expiries, expiryOffsets };
}

function corrupt(reason: string): Error {
  return storeErrors.blockCorrupt({ reason });
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
