// Closing what a start had opened before it failed. Why it failed is what the operator needs: what
// closing has to say besides goes to the log only.

import { type Closeable, type Logger, toError } from "../base/index.ts";

export async function closeAfterFailure(item: Closeable, logger: Logger): Promise<void> {
  try {
    await item.close();
  } catch (error) {
    logger.warn("node.close_failed", { error: toError(error) });
  }
}
