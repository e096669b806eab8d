// Lets at most so many tasks run at once; the others wait in order. One gate is shared by all
// stores of a process, because LevelDB's writes block threads that fdatasync needs as well.

export interface Gate {
  run<T>(task: () => Promise<T>): Promise<T>;
  /** Tasks that wait for a slot. */
  readonly waitingCount: number;
}

export function createGate(slots: number): Gate {
  let free = slots;
  const waiting: Array<() => void> = [];
  const enter = (): Promise<void> | undefined => {
    if (free > 0) {
      free--;
      return undefined;
    }
    return new Promise((resolve) => waiting.push(resolve));
  };
  // A slot goes from hand to hand, so that nobody who comes later gets ahead.
  const leave = (): void => {
    const next = waiting.shift();
    if (next === undefined) free++;
    else next();
  };
  return {
    get waitingCount(): number {
      return waiting.length;
    },
    async run(task) {
      await enter();
      try {
        return await task();
      } finally {
        leave();
      }
    },
  };
}
