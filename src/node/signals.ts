// Signals of the process, for the launcher only: embedding programs keep their own handlers.
// SIGTERM and SIGINT ask for a clean stop, a second one of either ends at once, SIGHUP asks for a
// reload. Ending at once is safe for data: it is no more than kill -9.

export type StopSignal = "SIGTERM" | "SIGINT";

export type SignalActions = {
  /** Called once, with the name of the signal. */
  stop(signal: StopSignal): void;
  /** A second signal came while stopping. */
  endNow(signal: StopSignal): void;
  reload(): void;
};

/** The part of `process` that is needed, so that tests need not signal themselves. */
export type SignalSource = {
  on(signal: NodeJS.Signals, listener: () => void): unknown;
  off(signal: NodeJS.Signals, listener: () => void): unknown;
};

/** Returns the removal of all handlers. */
export function watchSignals(actions: SignalActions, source: SignalSource): () => void {
  let stopping = false;
  const onStop = (signal: StopSignal) => (): void => {
    if (stopping) {
      actions.endNow(signal);
    } else {
      stopping = true;
      actions.stop(signal);
    }
  };
  const handlers: ReadonlyArray<readonly [NodeJS.Signals, () => void]> = [
    ["SIGTERM", onStop("SIGTERM")],
    ["SIGINT", onStop("SIGINT")],
    ["SIGHUP", () => actions.reload()],
  ];
  for (const [signal, handler] of handlers) source.on(signal, handler);
  return () => {
    for (const [signal, handler] of handlers) source.off(signal, handler);
  };
}
