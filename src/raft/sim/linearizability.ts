// Whether a history of writes and reads of one register could have happened one at a time.
//
// Every value is written once, which makes the question decidable in n log n (Gibbons and Korach,
// "Testing Shared Memories", 1997): take each write with its reads as a cluster, its zone between
// the earliest end and the latest begin in it. The history is linearizable if and only if no read
// ends before its write begins, no two forward zones overlap, and no backward zone lies in a
// forward one. A write whose outcome is unknown counts as never ending if its value was read, and
// as never made if not.

export type Operation = {
  readonly kind: "write" | "read";
  readonly value: number;
  readonly begin: number;
  /** Infinity when the outcome is not known. Unknown reads say nothing and are left out. */
  readonly end: number;
};

/** The value before the first write. */
export const initialValue = 0;

type Cluster = {
  value: number;
  written: boolean;
  begin: number;
  zoneEnd: number;
  zoneBegin: number;
};

/** Undefined if linearizable, else a sentence that says why not. */
export function findAnomaly(history: readonly Operation[]): string | undefined {
  const clusters = new Map<number, Cluster>();
  clusters.set(initialValue, {
    value: initialValue,
    written: true,
    begin: Number.NEGATIVE_INFINITY,
    zoneEnd: Number.NEGATIVE_INFINITY,
    zoneBegin: Number.NEGATIVE_INFINITY,
  });
  for (const { kind, value, begin, end } of history) {
    if (kind !== "write") continue;
    if (clusters.has(value)) return `value ${value} was written twice`;
    clusters.set(value, {
      value,
      written: end !== Infinity,
      begin,
      zoneEnd: end,
      zoneBegin: begin,
    });
  }
  for (const { kind, value, begin, end } of history) {
    if (kind !== "read" || end === Infinity) continue;
    const cluster = clusters.get(value);
    if (cluster === undefined) return `value ${value} was read and never written`;
    if (end < cluster.begin) return `value ${value} was read before it was written`;
    cluster.written = true;
    cluster.zoneEnd = Math.min(cluster.zoneEnd, end);
    cluster.zoneBegin = Math.max(cluster.zoneBegin, begin);
  }
  return findOverlap([...clusters.values()].filter((cluster) => cluster.written));
}

function findOverlap(clusters: readonly Cluster[]): string | undefined {
  const isForward = (cluster: Cluster): boolean => cluster.zoneEnd < cluster.zoneBegin;
  const forward = clusters.filter(isForward).sort((a, b) => a.zoneEnd - b.zoneEnd);
  for (let at = 1; at < forward.length; at++) {
    const [left, right] = [forward[at - 1] as Cluster, forward[at] as Cluster];
    if (right.zoneEnd < left.zoneBegin) {
      return `values ${left.value} and ${right.value} were each seen before and after the other`;
    }
  }
  for (const inner of clusters) {
    if (isForward(inner)) continue;
    const around = lastBefore(forward, inner.zoneBegin);
    if (around !== undefined && inner.zoneEnd < around.zoneBegin) {
      return `value ${around.value} was seen before and after all of value ${inner.value}`;
    }
  }
  return undefined;
}

// Forward zones are disjoint: only the last that begins before a time can contain it.
function lastBefore(forward: readonly Cluster[], time: number): Cluster | undefined {
  let low = 0;
  let high = forward.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((forward[middle] as Cluster).zoneEnd < time) low = middle + 1;
    else high = middle;
  }
  return forward[low - 1];
}
