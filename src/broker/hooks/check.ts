// Sets of hooks as they came from the program. A hook with a misspelt name would never be asked, and
// what it was to forbid would be allowed: it is refused at the start.

import { brokerErrors } from "../errors.ts";
import type { HookName, Hooks } from "./types.ts";

const known: Readonly<Record<HookName, true>> = {
  ...{ preConnect: true, authenticate: true, connected: true, authorizePublish: true },
  ...{ authorizeSubscribe: true, authorizeForward: true, published: true, subscribed: true },
  closed: true,
};

/** Fields that are no functions are the program's own. @throws BROKER_HOOKS_INVALID. */
export function checkHooks(sets: readonly Hooks[]): void {
  for (const hooks of sets) {
    if (typeof hooks !== "object" || hooks === null) {
      throw brokerErrors.hooksInvalid({ reason: "a set of hooks is an object with functions" });
    }
    for (const [name, value] of Object.entries(hooks)) {
      if (typeof value === "function" && !Object.hasOwn(known, name)) {
        const names = Object.keys(known).join(", ");
        const reason = `there is no hook ${JSON.stringify(name)}, there are ${names}`;
        throw brokerErrors.hooksInvalid({ reason });
      }
    }
    for (const name of Object.keys(known) as HookName[]) {
      const value: unknown = hooks[name];
      if (value !== undefined && typeof value !== "function") {
        throw brokerErrors.hooksInvalid({ reason: `${name} is no function` });
      }
    }
  }
}
