// Rules between keys, checked on the merged settings. Each broken rule is one fault, shown at the
// value that somebody wrote last.

import { topicFilterFault } from "../../topic/index.ts";
import type { Fault } from "./fault.ts";
import { quote } from "./fault.ts";
import type { Settings } from "./keys.ts";
import type { Effective } from "./resolve.ts";

type Report = (path: string, message: string) => void;

export function checkRules(
  settings: Settings,
  effective: ReadonlyMap<string, Effective>,
  faults: Fault[],
): void {
  const report: Report = (path, message) => {
    const place = effective.get(path)?.place ?? { kind: "default" };
    faults.push({ code: "CONFIG_COMBINATION_INVALID", place, path, message });
  };
  checkListeners(settings, report);
  checkPatterns(settings, report);
}

function checkListeners(settings: Settings, report: Report): void {
  const takenBy = new Map<string, string>();
  for (const [name, { host, port }] of Object.entries(settings.listeners)) {
    if (port === 0) continue;
    const path = `listeners.${name}.port`;
    const address = `${host}:${port}`;
    const owner = takenBy.get(address);
    if (owner === undefined) takenBy.set(address, path);
    else report(path, `${address} is taken by ${owner} already`);
  }
}

function checkPatterns(settings: Settings, report: Report): void {
  for (const pattern of settings.databases.messages.layoutOptions.patterns) {
    const fault = topicFilterFault(pattern);
    if (fault === undefined) continue;
    const reason = fault.replaceAll("_", " ");
    const path = "databases.messages.layoutOptions.patterns";
    report(path, `${quote(pattern)} is not a topic filter: ${reason}`);
  }
}
