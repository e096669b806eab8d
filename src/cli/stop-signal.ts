// Ctrl-C and SIGTERM for commands that run until they are told to stop.

import type { Io } from "./command.ts";

export type StopAsked = {
  readonly asked: Promise<void>;
  readonly isAsked: () => boolean;
  readonly remove: () => void;
};

const names = ["SIGINT", "SIGTERM"] as const;

export function stopSignal({ signals }: Pick<Io, "signals">): StopAsked {
  const stop = new AbortController();
  const listener = (): void => stop.abort();
  const asked = new Promise<void>((resolve) => {
    stop.signal.addEventListener("abort", () => resolve(), { once: true });
  });
  for (const name of names) signals.on(name, listener);
  const remove = (): void => {
    for (const name of names) signals.off(name, listener);
  };
  return { asked, remove, isAsked: () => stop.signal.aborted };
}
