// Keys of the `map` layout: levels joined by "/" outside, by U+0000 on disk, so that keys sort
// level by level and a wildcard look-up can step over whole branches.

import type { CodedError } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";

/** Longest key in UTF-8 bytes. */
export const mapKeyBytesMax = 65_536 + 256;

const utf8BytesMax = 3;
const separator = "\0";
/** Greater than the separator and smaller than any character a level may begin with. */
const afterSeparator = "\x01";

/** Foreign text as one level without "/", U+0000 or wildcards; "%" marks what was replaced. */
export function escapeLevel(text: string): string {
  return text.replace(
    /[%/+#\0]/g,
    (char) => `%${char.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

export function unescapeLevel(level: string): string {
  return level.replace(/%([0-9a-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** Why a key cannot be written; undefined when it can. */
export function mapKeyError(key: string): CodedError | undefined {
  if (key.includes(separator)) return storeErrors.keyInvalid({ reason: "it holds U+0000" });
  if (key.length * utf8BytesMax <= mapKeyBytesMax) return undefined;
  const sizeBytes = Buffer.byteLength(key, "utf8");
  if (sizeBytes <= mapKeyBytesMax) return undefined;
  return storeErrors.keyInvalid({ reason: `${sizeBytes} bytes are above ${mapKeyBytesMax}` });
}

/** REQUIRES: `mapKeyError` had nothing to say, or the key is only looked for. */
export function encodeMapKey(key: string): Buffer {
  return Buffer.from(key.replaceAll("/", separator), "utf8");
}

export function decodeMapKey(bytes: Buffer): string {
  return bytes.toString("utf8").replaceAll(separator, "/");
}

/** First position after `key` and everything below it. */
export function afterSubtree(key: string): Buffer {
  return Buffer.from(key.replaceAll("/", separator) + afterSeparator, "utf8");
}

/** First position below `key`: its children, `key` itself left out. */
export function childrenOf(key: string): Buffer {
  return Buffer.from(key.replaceAll("/", separator) + separator, "utf8");
}
