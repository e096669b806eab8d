// What random histories of a node have covered. Every count must be above zero over many seeds: a
// world in which something never happens shows nothing about it.

export type HistoryCounts = ReturnType<typeof historyCountsZero>;

export function historyCountsZero() {
  return {
    operations: 0,
    published: 0,
    acked: 0,
    resent: 0,
    refused: 0,
    receivedQos0: 0,
    receivedQos1: 0,
    receivedQos2: 0,
    repeats: 0,
    retained: 0,
    wills: 0,
    subscribed: 0,
    unsubscribed: 0,
    kills: 0,
    powerCuts: 0,
    recoveryDeaths: 0,
    stops: 0,
    drops: 0,
    takeovers: 0,
    resets: 0,
    blackHoles: 0,
    fullDisks: 0,
    rotations: 0,
    checkpoints: 0,
    realtimeTtvs: 0,
    catchUpTtvs: 0,
    handOvers: 0,
    /** Deaths by the phase they were aimed at. */
    aimed: {} as Record<string, number>,
  };
}

export function addCounts(total: HistoryCounts, more: HistoryCounts): void {
  for (const name of Object.keys(total) as Array<keyof HistoryCounts>) {
    if (name !== "aimed") total[name] += more[name];
  }
  for (const [phase, count] of Object.entries(more.aimed)) {
    total.aimed[phase] = (total.aimed[phase] ?? 0) + count;
  }
}
