// Rules as the broker asks them: the sets in force (a file, the store) and what came with a login.
// A set is swapped as a whole; the next question, of whomever, is answered by the new one.

import type { AccessAction, AccessPort, Client } from "../access.ts";
import type { RuleSet } from "./rule-file.ts";
import { ClientRules, type Rule, resolveGrant } from "./rules.ts";

export type RuleAccessSettings = {
  /**
   * Rights may come with a login. Those of a client that is gone are not known when its will is
   * published: it was checked when it was given, and only a rule that denies it stops it then.
   */
  readonly hasLoginRights: boolean;
};

export class RuleAccess implements AccessPort {
  readonly #settings: RuleAccessSettings;
  readonly #sets = new Map<string, RuleSet>();
  #clients = new WeakMap<Client, ClientRules>();

  constructor(settings: RuleAccessSettings) {
    this.#settings = settings;
  }

  /** `source` names what is replaced, such as `rule_file`. */
  setRules(source: string, rules: RuleSet): void {
    this.#sets.set(source, rules);
    this.#clients = new WeakMap();
  }

  authorize(action: AccessAction, client: Client, topic: string): boolean {
    return this.#rulesOf(client).may(action, topic);
  }

  authorizeWill(client: Client, topic: string): boolean {
    const rules = this.#rulesOf(client);
    if (this.#settings.hasLoginRights) return !rules.isDenied("publish", topic);
    return rules.may("publish", topic);
  }

  #rulesOf(client: Client): ClientRules {
    const known = this.#clients.get(client);
    if (known !== undefined) return known;
    const { clientId, user, grants = [] } = client;
    const lists: Array<readonly Rule[]> = [];
    const own: Rule[] = [];
    const resolve = (grant: Parameters<typeof resolveGrant>[0]): void => {
      const rule = resolveGrant(grant, client);
      if (rule !== undefined) own.push(rule);
    };
    grants.forEach(resolve);
    for (const set of this.#sets.values()) {
      lists.push(set.everyone);
      lists.push((user === undefined ? set.anonymous : set.users.get(user)) ?? []);
      lists.push(set.clients.get(clientId) ?? []);
      set.patterns.forEach(resolve);
    }
    const rules = new ClientRules([own, ...lists]);
    this.#clients.set(client, rules);
    return rules;
  }
}
