// Users and rules in the node's store. Passwords come in and never go out.

import { limitDefault } from "../contract/values.ts";
import { adminErrors } from "../errors.ts";
import { given, type Handlers, missing, type Running } from "../handler-types.ts";

export type UserHandlers = Handlers<
  "listUsers" | "putUser" | "deleteUser" | "getRules" | "putRules"
>;

export function userHandlers(running: Running): UserHandlers {
  return {
    listUsers: ({ query: { after, limit = limitDefault } }) => {
      const all = running().access.users();
      const rest = after === undefined ? all : all.filter(({ name }) => name > after);
      const items = rest.slice(0, limit).map((user) => ({ ...user }));
      const next = rest.length > items.length ? items.at(-1)?.name : undefined;
      return given({ items, next, total: all.length });
    },
    putUser: async ({ params: { user }, body: { password, scram, expect } }) => {
      const { access } = running();
      const isKnown = access.users().some(({ name }) => name === user);
      if (expect === "known" && !isKnown) throw missing("user", user);
      if (expect === "new" && isKnown) {
        throw adminErrors.thingExists({ thing: "user", name: JSON.stringify(user) });
      }
      await access.putUser(user, password, scram);
      return { done: true };
    },
    deleteUser: async ({ params: { user } }) => {
      if (!(await running().access.removeUser(user))) throw missing("user", user);
      return { done: true };
    },
    getRules: () => ({ text: running().access.rules() }),
    putRules: async ({ body: { text, dryRun } }) => {
      const { access } = running();
      if (dryRun) access.checkRules(text);
      else await access.replaceRules(text);
      return { dryRun };
    },
  };
}
