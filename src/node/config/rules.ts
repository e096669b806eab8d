// Rules between keys, checked on the merged settings. Each broken rule is one fault, shown at the
// value that somebody wrote last.

import { topicFilterFault } from "../../topic/index.ts";
import { checkCluster } from "./cluster-rules.ts";
import type { Fault } from "./fault.ts";
import { quote } from "./fault.ts";
import type { Settings } from "./keys.ts";
import type { Effective } from "./resolve.ts";
import { parseRootThresholds } from "./root-thresholds.ts";
import { checkSecurity, type Report } from "./security-rules.ts";

export function checkRules(
  settings: Settings,
  effective: ReadonlyMap<string, Effective>,
  faults: Fault[],
): void {
  const report: Report = (path, message) => {
    const place = effective.get(path)?.place ?? { kind: "default" };
    faults.push({ code: "CONFIG_COMBINATION_INVALID", place, path, message });
  };
  checkSecurity(settings, report);
  checkPatterns(settings, report);
  checkGroups(settings, report);
  checkCluster(settings, effective, report);
}

function checkPatterns(settings: Settings, report: Report): void {
  for (const [name, { layoutOptions, topics, layout }] of Object.entries(settings.databases)) {
    const path = `databases.${name}`;
    checkFilters(layoutOptions.patterns, `${path}.layoutOptions.patterns`, report);
    checkFilters(topics, `${path}.topics`, report);
    for (const text of layoutOptions.rootThresholds) {
      if (parseRootThresholds(text) !== undefined) continue;
      const fault = `${quote(text)} is not a level and its thresholds, such as metrics=1000/10`;
      report(`${path}.layoutOptions.rootThresholds`, fault);
    }
    if (name === "state" && layout !== "map") report(`${path}.layout`, "state has layout map");
    if (name === "messages" && layout !== "log")
      report(`${path}.layout`, "messages has layout log");
    if (layout === "map" && topics.length > 0) {
      report(`${path}.topics`, "topics go to databases of layout log");
    }
  }
}

function checkFilters(filters: readonly string[], path: string, report: Report): void {
  for (const filter of filters) {
    const fault = topicFilterFault(filter);
    if (fault === undefined) continue;
    report(path, `${quote(filter)} is not a topic filter: ${fault.replaceAll("_", " ")}`);
  }
}

function checkGroups(settings: Settings, report: Report): void {
  const groupOf = new Map<string, string>();
  for (const [name, { databases }] of Object.entries(settings.groups)) {
    const path = `groups.${name}.databases`;
    for (const database of databases) {
      const other = groupOf.get(database);
      if (other === undefined) groupOf.set(database, name);
      else report(path, `${quote(database)} belongs to group ${other} already`);
    }
  }
}
