// Watermarks of the volume: what a node does while others, or it itself, fill the disk. One counts
// only when both its share and its absolute free space are undercut: 85 % of a large volume is much
// room, 4 GiB of a small one is most of it.

export type Watermark = { readonly usedShare: number; readonly freeBytes: number };

export type Watermarks = {
  /** New TTVs are refused from here on. */
  readonly low: Watermark;
  /** Only an alarm more: the last room belongs to deletes and progress. */
  readonly critical: Watermark;
};

export type SpaceState = "roomy" | "low" | "critical";

const gib = 2 ** 30;

export const watermarksDefault: Watermarks = {
  low: { usedShare: 0.85, freeBytes: 4 * gib },
  critical: { usedShare: 0.95, freeBytes: gib / 2 },
};

/** A watermark is left when a sixteenth more is free than it asks for. */
const leaveShare = 17 / 16;

export function nextSpaceState(
  state: SpaceState,
  space: { readonly freeBytes: number; readonly totalBytes: number },
  marks: Watermarks,
): SpaceState {
  if (isUnder(space, marks.critical, state === "critical")) return "critical";
  return isUnder(space, marks.low, state !== "roomy") ? "low" : "roomy";
}

function isUnder(
  { freeBytes, totalBytes }: { readonly freeBytes: number; readonly totalBytes: number },
  mark: Watermark,
  wasUnder: boolean,
): boolean {
  const factor = wasUnder ? leaveShare : 1;
  const freeShare = (1 - mark.usedShare) * factor;
  return freeBytes < totalBytes * freeShare && freeBytes < mark.freeBytes * factor;
}
