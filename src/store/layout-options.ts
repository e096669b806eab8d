// What a database says of how its topics are learned, laid over the defaults of the node.

import { parseTopicFilter } from "../topic/index.ts";
import type { LtsSettings } from "./core/lts.ts";
import type { LayoutOptions } from "./operator-api.ts";

/** REQUIRES: the options were checked when they were written (catalog.ts). */
export function ltsSettingsOf(base: LtsSettings, options: LayoutOptions): LtsSettings {
  const { thresholds, rootThresholds, patterns, streamsMax, trieBytesMax } = options;
  return {
    ...base,
    ...(thresholds === undefined ? {} : { thresholds, dollarThresholds: thresholds }),
    ...(rootThresholds === undefined
      ? {}
      : { rootThresholds: new Map(Object.entries(rootThresholds)) }),
    ...(patterns === undefined ? {} : { patterns: patterns.map((each) => parseTopicFilter(each)) }),
    ...(streamsMax === undefined ? {} : { streamsMax }),
    ...(trieBytesMax === undefined ? {} : { bytesMax: trieBytesMax }),
  };
}
