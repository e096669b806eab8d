// The layouts of log slabs that this build knows, each frozen: a change is a new name. A slab keeps
// its layout for life; generations that begin get the newest, and one of an older layout that is
// current ends soon after the start (`retention.ts`).

import { storeErrors } from "../errors.ts";

/** What generations that begin are laid out as. */
export const layoutName = "log-v2";
/** Without windows: readers of many streams look each of them up. */
const withoutWindows = "log-v1";

export function hasWindows(layout: string): boolean {
  return layout === layoutName;
}

/** @throws STORE_LAYOUT_UNKNOWN. */
export function checkLayout(generation: { readonly number: number; readonly layout: string }) {
  const { number, layout } = generation;
  if (layout === layoutName || layout === withoutWindows) return;
  throw storeErrors.layoutUnknown({ what: `generation ${number}`, layout });
}
