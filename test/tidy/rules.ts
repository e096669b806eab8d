// All tidy rules by name. A rule is a function from a file tree to faults: the same function judges
// the project and the planted faults that prove it can see.

import * as code from "./code-rules.ts";
import * as imports from "./import-rules.ts";
import * as project from "./project-rules.ts";
import type { Fault, FileTree } from "./tree.ts";

export type Rule = (tree: FileTree) => Fault[];

export const rules = {
  floors: imports.floorsRule,
  doors: imports.doorsRule,
  barrels: imports.barrelsRule,
  resolves: imports.resolvesRule,
  cycles: imports.cyclesRule,
  homes: imports.homesRule,
  core: code.coreRule,
  globals: code.globalsRule,
  "test-time": code.testTimeRule,
  sizes: code.sizesRule,
  headers: code.headersRule,
  declarations: code.declarationsRule,
  skipped: code.skippedRule,
  markers: code.markersRule,
  versions: project.versionsRule,
  lock: project.lockRule,
  links: project.linksRule,
  mentions: project.mentionsRule,
  foreign: project.foreignRule,
} satisfies Record<string, Rule>;

export type RuleName = keyof typeof rules;
