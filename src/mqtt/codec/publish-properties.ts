// The properties of a PUBLISH, walked without building anything: validates what a client sent and
// notes where the few things lie that the broker acts on.
//
// Same rules as `decodeProperties`, which stays the readable form: a property test holds the two
// together.

import { malformed, protocolError, quotaExceeded, topicAliasInvalid } from "../errors.ts";
import { checkResponseTopic, type DecodeContext } from "./decode-context.ts";
import { decodeText, hasControlCharacters } from "./reader.ts";

/** Offsets are in the buffer walked; 0 where the property is absent. */
export type PublishProperties = {
  messageExpiryS: number;
  /** Of the four bytes of the expiry. */
  expiryOffset: number;
  topicAlias: number;
  /** Of the property identifier in front of the alias. */
  aliasOffset: number;
  /** 1 when the payload is said to be UTF-8. */
  payloadFormat: number;
};

const payloadFormatId = 0x01;
const messageExpiryId = 0x02;
const contentTypeId = 0x03;
const responseTopicId = 0x08;
const correlationDataId = 0x09;
const subscriptionIdentifierId = 0x0b;
const topicAliasId = 0x23;
const userPropertyId = 0x26;

/** Bytes of the alias property: identifier and two-byte value. */
export const aliasPropertyBytes = 3;

/** Fills `found` from the properties in `bytes[start, end)` of a client's PUBLISH. */
export function skimPublishProperties(
  bytes: Buffer,
  start: number,
  end: number,
  context: DecodeContext,
  found: PublishProperties,
): void {
  let seen = 0;
  let pairs = 0;
  let offset = start;
  while (offset < end) {
    const id = bytes[offset++] as number;
    if (id === userPropertyId) {
      if (pairs++ === context.userPropertiesMax) {
        throw quotaExceeded("user properties", context.userPropertiesMax);
      }
      offset = skipText(bytes, offset, end, context);
      offset = skipText(bytes, offset, end, context);
      continue;
    }
    if (id === subscriptionIdentifierId)
      throw protocolError("subscription identifier from a client");
    const bit = bitOf(id);
    if ((seen & bit) !== 0) throw protocolError(`property ${id} stands twice`);
    seen |= bit;
    offset = readOne(bytes, offset, end, context, found);
  }
}

const singleIds =
  (1 << payloadFormatId) |
  (1 << messageExpiryId) |
  (1 << contentTypeId) |
  (1 << responseTopicId) |
  (1 << correlationDataId);

/** One bit for each property that may stand once. The alias takes bit 0: no identifier is 0. */
function bitOf(id: number): number {
  if (id === topicAliasId) return 1;
  const bit = id < 32 ? singleIds & (1 << id) : 0;
  if (bit === 0) throw malformed(`property ${id} in PUBLISH`);
  return bit;
}

/** The property whose identifier lies before `offset`; returns the offset behind it. */
function readOne(
  bytes: Buffer,
  offset: number,
  end: number,
  context: DecodeContext,
  found: PublishProperties,
): number {
  switch (bytes[offset - 1]) {
    case payloadFormatId: {
      need(offset, 1, end);
      const format = bytes[offset] as number;
      if (format > 1) throw protocolError(`payloadFormat is ${format}`);
      found.payloadFormat = format;
      return offset + 1;
    }
    case messageExpiryId:
      need(offset, 4, end);
      found.messageExpiryS = bytes.readUInt32BE(offset);
      found.expiryOffset = offset;
      return offset + 4;
    case contentTypeId:
      return skipText(bytes, offset, end, context);
    case responseTopicId: {
      const next = skipText(bytes, offset, end, context);
      checkResponseTopic(bytes.toString("utf8", offset + 2, next));
      return next;
    }
    case correlationDataId:
      return skipBinary(bytes, offset, end);
    default:
      // The alias: every other identifier was refused before.
      need(offset, 2, end);
      found.topicAlias = bytes.readUInt16BE(offset);
      if (found.topicAlias === 0) throw topicAliasInvalid(0, 0xffff);
      found.aliasOffset = offset - 1;
      return offset + 2;
  }
}

function need(offset: number, size: number, end: number): void {
  if (size > end - offset) throw malformed("property ends past its packet");
}

function skipBinary(bytes: Buffer, offset: number, end: number): number {
  need(offset, 2, end);
  const size = bytes.readUInt16BE(offset);
  need(offset + 2, size, end);
  return offset + 2 + size;
}

function skipText(bytes: Buffer, offset: number, end: number, context: DecodeContext): number {
  const next = skipBinary(bytes, offset, end);
  for (let index = offset + 2; index < next; index++) {
    const byte = bytes[index] as number;
    // Plain text needs no string; everything else goes the long way once.
    if (byte < 0x20 || byte >= 0x7f) {
      const text = decodeText(bytes, offset + 2, next, "property");
      if (context.refuseControlCharacters && hasControlCharacters(text)) {
        throw malformed("property contains control characters");
      }
      break;
    }
  }
  return next;
}
