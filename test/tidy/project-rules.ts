// Rules on the project as a whole: what package.json and its lock promise, links between documents,
// words that mean nothing to a stranger who cloned the repository.

import type { Fault, FileTree } from "./tree.ts";
import { isCode, resolveImport, scanOf } from "./tree.ts";

type Lock = {
  lockfileVersion?: number;
  packages?: Record<string, Record<string, unknown>>;
};

const exact = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;

/** Versions are exact, and the lock agrees with them. */
export function versionsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const path = "package.json";
  const manifest = parseJson(tree, path);
  const locked = (parseJson(tree, "package-lock.json") as Lock).packages?.[""] ?? {};
  for (const field of ["dependencies", "devDependencies", "optionalDependencies"]) {
    const wanted = (manifest[field] ?? {}) as Record<string, string>;
    const held = (locked[field] ?? {}) as Record<string, string>;
    for (const [name, version] of Object.entries(wanted)) {
      const line = lineOf(tree, path, `"${name}"`);
      if (!exact.test(version)) {
        faults.push({ rule: "versions", path, line, message: `${name}: ${version} is not exact` });
      }
      if (held[name] !== version) {
        const message = `${name}: ${version} here, ${held[name] ?? "nothing"} in package-lock.json`;
        faults.push({ rule: "versions", path, line, message });
      }
    }
  }
  return faults;
}

/** The lock installs from any registry: hashes, but no hosts. */
export function lockRule(tree: FileTree): Fault[] {
  const path = "package-lock.json";
  if (!tree.has(path)) return [];
  const faults: Fault[] = [];
  const lock = parseJson(tree, path) as Lock;
  const report = (line: number, message: string) =>
    faults.push({ rule: "lock", path, line, message });
  if (lock.lockfileVersion !== 3) report(1, `lockfileVersion ${lock.lockfileVersion}, not 3`);
  for (const [name, entry] of Object.entries(lock.packages ?? {})) {
    if (name === "") continue;
    const line = lineOf(tree, path, `"${name}"`);
    if (entry.resolved !== undefined) report(line, `${name} names the host ${entry.resolved}`);
    if (entry.integrity === undefined) report(line, `${name} has no integrity hash`);
  }
  return faults;
}

const link = /\[[^\]]*\]\(([^)\s]+)(?:\s+"[^"]*")?\)/g;

/** Relative links of documents lead to files, and their #fragments to headings. */
export function linksRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const folders = foldersOf(tree);
  for (const [path, text] of tree) {
    if (!path.endsWith(".md")) continue;
    withoutFences(text).forEach((content, index) => {
      for (const [, target] of content.matchAll(link)) {
        const message = linkFault(tree, folders, path, target as string);
        if (message !== undefined) faults.push({ rule: "links", path, line: index + 1, message });
      }
    });
  }
  return faults;
}

function linkFault(tree: FileTree, folders: Set<string>, from: string, target: string) {
  if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return undefined;
  const [file, fragment] = target.split("#") as [string, string | undefined];
  const relative = /^\.\.?\//.test(file) ? file : `./${file}`;
  const to = file === "" ? from : (resolveImport(from, relative) ?? "").replace(/\/$/, "");
  if (!tree.has(to) && !folders.has(to)) return `link to ${target}: there is no ${to}`;
  if (fragment === undefined || !to.endsWith(".md")) return undefined;
  const anchors = withoutFences(tree.get(to) ?? "").map(anchorOf);
  return anchors.includes(fragment) ? undefined : `link to ${target}: no such heading in ${to}`;
}

function foldersOf(tree: FileTree): Set<string> {
  const folders = new Set([""]);
  for (const path of tree.keys()) {
    const parts = path.split("/");
    for (let length = 1; length < parts.length; length++) {
      folders.add(parts.slice(0, length).join("/"));
    }
  }
  return folders;
}

/** The anchor that a Markdown heading gets; empty for other lines. */
function anchorOf(line: string): string {
  const heading = /^#{1,6}\s+(.*)$/.exec(line)?.[1];
  if (heading === undefined) return "";
  const plain = heading.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "");
  return plain.trim().replace(/\s/g, "-");
}

/** Lines of a document with those of fenced code blanked, so that numbers stay right. */
function withoutFences(text: string): string[] {
  let inside = false;
  return text.split("\n").map((line) => {
    const fence = /^\s*(```|~~~)/.test(line);
    if (fence) inside = !inside;
    return fence || inside ? "" : line;
  });
}

/** A comment or a page that names a document names one that a reader of the repository has. */
export function mentionsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const mention = /\b(?:docs\/[\w./-]+?|[A-Z][A-Z-]+)\.md\b/g;
  const names = new Set([...tree.keys()].map((path) => path.split("/").at(-1)));
  const check = (path: string, line: number, text: string): void => {
    for (const [found] of text.matchAll(mention)) {
      const known = found.includes("/") ? tree.has(found) : names.has(found);
      const message = `names ${found}, which is not in the project`;
      if (!known) faults.push({ rule: "mentions", path, line, message });
    }
  };
  for (const [path, text] of tree) {
    if (isCode(path)) {
      for (const comment of scanOf(tree, path).comments) check(path, comment.line, comment.text);
    } else if (path.endsWith(".md")) {
      withoutFences(text).forEach((line, index) => {
        check(path, index + 1, line);
      });
    }
  }
  return faults;
}

// Spelled in parts, so that this file does not hold what it looks for.
const foreign: ReadonlyArray<readonly [RegExp, string]> = [
  [new RegExp(`(^|[\\s"'\`(=:])${"/wo"}${"rk"}(/|\\b)`), "a path of one machine"],
  [new RegExp(`\\.\\./${"sha"}${"red"}\\b`), "a folder beside the repository"],
  [/\/(home|Users|root)\/[a-z]/, "a home directory"],
  [new RegExp(`\\b(${"DES"}IGN|${"STY"}LE|${"HOU"}SE|${"HEL"}PER)\\.md\\b`), "a foreign document"],
  [
    new RegExp(`\\b(${"field"}-reports|${"speed"}-notes|${"raft"}-notes|${"mqtt"}-checklist)\\b`),
    "a foreign document",
  ],
  [new RegExp(`\\b(${"co"}ordinator|${"work"}tree|${"sub"}agent)s?\\b`, "i"), "a way of working"],
  [
    new RegExp(`\\b(${"cla"}ude|${"anth"}ropic|${"chat"}gpt|${"co"}pilot)\\b`, "i"),
    "a tool's name",
  ],
];

/** Nothing names the place, the people or the tools that made it. */
export function foreignRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const [path, text] of tree) {
    if (path === "package-lock.json") continue;
    text.split("\n").forEach((line, index) => {
      for (const [pattern, what] of foreign) {
        const found = pattern.exec(line)?.[0].trim();
        if (found === undefined) continue;
        const message = `${what}: ${found}`;
        faults.push({ rule: "foreign", path, line: index + 1, message });
      }
    });
  }
  return faults;
}

function parseJson(tree: FileTree, path: string): Record<string, unknown> {
  return JSON.parse(tree.get(path) ?? "{}") as Record<string, unknown>;
}

function lineOf(tree: FileTree, path: string, needle: string): number {
  const lines = (tree.get(path) ?? "").split("\n");
  return lines.findIndex((line) => line.includes(needle)) + 1;
}
