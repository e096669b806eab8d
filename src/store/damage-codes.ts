// Which failures say that a slab cannot be used, and not that the machine is in trouble.

import { isCodedError } from "../base/index.ts";

const damageCodes = new Set([
  "KV_CORRUPT",
  "STORE_ROW_CORRUPT",
  "STORE_TOPICS_CORRUPT",
  "STORE_SLAB_CORRUPT",
]);

export function isDamage(error: unknown): boolean {
  return isCodedError(error) && damageCodes.has(error.code);
}
