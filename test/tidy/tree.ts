// A file tree as plain data, so that a rule reads a real checkout and a planted fault alike.
// Paths are relative to the project's root, with forward slashes. Build output, installed packages,
// data directories and hidden folders other than `.ci` are left out.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { listImports, type Scan, scan } from "./scan.ts";

export type FileTree = ReadonlyMap<string, string>;

export type Fault = {
  readonly rule: string;
  readonly path: string;
  readonly line: number;
  readonly message: string;
};

const leftOut = new Set(["node_modules", "dist", "data", "coverage"]);
const hiddenKept = new Set([".ci", ".gitignore", ".dockerignore"]);
const textFile =
  /(^|\/)(Dockerfile|LICENSE|run)$|\.(ts|tsx|cts|mts|js|mjs|json|md|yaml|yml|c|h|sh|service)$/;

export function readTree(root: string): FileTree {
  const files = new Map<string, string>();
  const visit = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
      if (leftOut.has(entry.name)) continue;
      if (entry.name.startsWith(".") && !hiddenKept.has(entry.name)) continue;
      if (entry.isDirectory()) visit(path);
      else if (entry.isFile() && textFile.test(path)) {
        files.set(path, readFileSync(join(root, path), "utf8"));
      }
    }
  };
  visit("");
  return files;
}

export function createTree(files: Readonly<Record<string, string>>): FileTree {
  return new Map(Object.entries(files));
}

const scans = new WeakMap<FileTree, Map<string, Scan>>();

/** The scan of one file, made once per tree. */
export function scanOf(tree: FileTree, path: string): Scan {
  let known = scans.get(tree);
  if (known === undefined) {
    known = new Map();
    scans.set(tree, known);
  }
  let found = known.get(path);
  if (found === undefined) {
    found = scan(tree.get(path) ?? "");
    known.set(path, found);
  }
  return found;
}

export function importsOf(tree: FileTree, path: string): ReturnType<typeof listImports> {
  return listImports(scanOf(tree, path).tokens);
}

export function isCode(path: string): boolean {
  return /\.(ts|tsx|cts|mts|mjs|js)$/.test(path);
}

export function codeIn(tree: FileTree, folder: string): string[] {
  return [...tree.keys()].filter((path) => path.startsWith(`${folder}/`) && isCode(path)).sort();
}

/** Resolves `./x.ts` and `../y/z.ts` against the importing file; undefined for packages. */
export function resolveImport(from: string, specifier: string): string | undefined {
  if (!specifier.startsWith("./") && !specifier.startsWith("../")) return undefined;
  const parts = from.split("/").slice(0, -1);
  for (const part of specifier.split("/")) {
    if (part === "..") {
      if (parts.length === 0) return `../${specifier}`;
      parts.pop();
    } else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}

export function formatFaults(faults: readonly Fault[]): string {
  return faults.map((f) => `${f.path}:${f.line}: [${f.rule}] ${f.message}`).join("\n");
}
