// What a simulated history of the store has besides the common: drawn from its seed, so that each
// thing meets the others and each is on in at least a fifth of the histories.

import type { SeededRandom } from "../../src/base/index.ts";
import { groupSettingsDefault, type OnFull, type StoreSettings } from "../../src/store/index.ts";

export type Features = {
  /** A group with little room. */
  readonly quota: OnFull | "none";
  /** A database that is made, altered and dropped while the store runs. */
  readonly databases: boolean;
  readonly holds: boolean;
  /** Generations that end by size and go by age and bytes. */
  readonly retention: boolean;
  /** A wall clock that jumps by months, and starts in 1970. */
  readonly clock: boolean;
  /** Bits that flip while the machine is off. */
  readonly damage: boolean;
  /** A write buffer with little room. */
  readonly buffer: boolean;
};

export const featureNames = [
  ...(["quota", "databases", "holds", "retention", "clock", "damage"] as const),
] as const;

const featureChance = 0.5;
const damageChance = 0.3;

export function drawFeatures(random: SeededRandom): Features {
  // Damage may lose what the others must not lose: what is judged then is what readers are told.
  if (random.chance(damageChance)) {
    const none = { quota: "none", databases: false, holds: false, retention: false } as const;
    return { ...none, clock: false, damage: true, buffer: false };
  }
  const hasQuota = random.chance(featureChance);
  const onFull = random.chance(0.5) ? "refuse" : "drop_oldest";
  return {
    quota: hasQuota ? onFull : "none",
    databases: random.chance(featureChance),
    holds: random.chance(featureChance),
    retention: random.chance(featureChance),
    clock: random.chance(featureChance),
    damage: false,
    buffer: !hasQuota && random.chance(0.2),
  };
}

const kib = 1024;

export function settingsOf(features: Features): Partial<StoreSettings> {
  const { quota, retention, buffer } = features;
  const group = {
    ...groupSettingsDefault,
    ...(quota === "none" ? {} : { quotaBytes: 576 * kib, onFull: quota }),
    ...(buffer ? { writeBufferBytesMax: 96 * kib } : {}),
  };
  const kept = {
    retention: { ageMs: 20_000, bytes: 96 * kib },
    generationBytesMax: 24 * kib,
  };
  return {
    ...{
      openSlabsMax: 1,
      wideStreamsMin: 3,
      restingTriesBytesMax: 1,
      blockCacheBytesMax: 64 * kib,
      groups: [group],
    },
    ...(retention ? kept : {}),
  };
}

/** Something else than what was asked for may drop generations. */
export function dropsByItself({ quota, retention, clock }: Features): boolean {
  return quota !== "none" || retention || clock;
}
