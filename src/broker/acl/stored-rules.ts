// Rules in the store: one text in the grammar of the rule file, under one key of the `meta` database.
// As a whole it is written or not, and is never half of itself.

import type { MapShard } from "../../store/index.ts";
import { write } from "../auth/stored-users.ts";
import { brokerErrors } from "../errors.ts";
import { noRules, parseRuleFile, type RuleSet } from "./rule-file.ts";

const key = "rules";
/** A record of the log takes it whole. */
const textBytesMax = 1024 * 1024;

export class StoredRules {
  readonly #meta: MapShard;
  #text = "";
  #set: RuleSet = noRules;
  /** How often they were applied here. */
  #applied = 0;

  constructor(meta: MapShard) {
    this.#meta = meta;
  }

  get text(): string {
    return this.#text;
  }

  get rules(): RuleSet {
    return this.#set;
  }

  /** @throws BROKER_RULES_INVALID when they cannot be read: nothing would be denied without them. */
  async load(): Promise<void> {
    const applied = this.#applied;
    const entry = await this.#meta.get(key);
    if (entry === undefined || applied !== this.#applied) return;
    this.#take(entry.value.toString("utf8"));
  }

  /**
   * Before `load`, where other nodes write too: `changed` is told of what was applied. What cannot be
   * read leaves the rules as they are, and is told to `fault`.
   */
  follow(changed: () => void, fault: (error: unknown) => void): void {
    const safely = (run: () => void): void => {
      try {
        run();
        changed();
      } catch (error) {
        fault(error);
      }
    };
    this.#meta.watch(key, {
      applied: (name, value) => {
        if (name !== key) return;
        this.#applied++;
        safely(() => this.#take(value?.toString("utf8") ?? ""));
      },
      replaced: async () => {
        const entry = await this.#meta.get(key);
        safely(() => this.#take(entry?.value.toString("utf8") ?? ""));
      },
    });
  }

  #take(text: string): void {
    this.#set = parseRuleFile(text);
    this.#text = text;
  }

  /**
   * Replaces all rules. Durable when it resolves.
   * @throws BROKER_RULES_INVALID with the line that is wrong; nothing has changed then.
   */
  async replace(text: string): Promise<void> {
    if (Buffer.byteLength(text) > textBytesMax) {
      throw brokerErrors.rulesInvalid({ what: "rules", line: 0, reason: "larger than 1 MiB" });
    }
    parseRuleFile(text);
    await write(this.#meta, key, Buffer.from(text));
    this.#take(text);
  }
}
