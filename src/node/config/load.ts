// YAML text -> raw tree with places, and the faults of its syntax. The one home of the yaml package.
// Takes YAML 1.2 core: `on`, `off` and `1:30` are texts, not booleans or sums. A byte order mark is
// tolerated; UTF-16, UTF-32 and bytes that are not UTF-8 are refused. Anchors work; merge keys (<<),
// custom tags, a second document and duplicate keys are refused.
// Bounded: files up to 1 MiB, 100 alias uses, 32 levels; what nests deeper is refused unparsed.

import { createRequire } from "node:module";
import type * as Yaml from "yaml";
import type { Document, LineCounter, Node, Scalar, YAMLError, YAMLMap } from "yaml";
import type { Fault } from "./fault.ts";
import type { FilePlace, Place } from "./place.ts";
import type { RawEntry, RawMap, RawNode } from "./raw.ts";

const require = createRequire(import.meta.url);
/** Loaded when there is something to read: most starts have no file, and it would slow them. */
const yaml = (): typeof Yaml => require("yaml");

export const configBytesMax = 1024 * 1024;
const aliasUsesMax = 100;
const depthMax = 32;
/** No line of a file that anybody wrote begins this far to the right. */
const indentMax = 512;

// What the lexer says of the text beside its parts.
const documentMark = "\u0002";
const flowErrorMark = "\u0018";
const scalarMark = "\u001f";

export type LoadedFile = { readonly root: RawMap; readonly faults: readonly Fault[] };

/** Bytes of a configuration file as a raw tree. Never throws: what is wrong is in `faults`. */
export function loadYaml(file: string, bytes: Uint8Array): LoadedFile {
  const start = wholeFile(file);
  const nothing: RawMap = { kind: "map", place: start, entries: [] };
  const encoding = refusedEncoding(bytes);
  if (encoding !== undefined) return { root: nothing, faults: [sourceFault(start, encoding)] };
  if (bytes.length > configBytesMax) {
    return { root: nothing, faults: [sourceFault(start, "the file is larger than 1MiB")] };
  }
  const text = Buffer.from(bytes)
    .toString("utf8")
    .replace(/^\uFEFF/, "");
  const deepAt = tooDeepAt(text);
  if (deepAt !== undefined) {
    const line = text.slice(0, deepAt).split("\n").length;
    const sentence = `line ${line} nests more than ${depthMax} levels deep`;
    return { root: nothing, faults: [sourceFault(start, sentence)] };
  }
  const reader = new YamlReader(file, text);
  return reader.read();
}

/**
 * Where a text nests too deeply, by its tokens. The parser calls itself for each level, and where
 * its stack ends V8 may end the process: it does when that is while it compiles an expression.
 */
function tooDeepAt(text: string): number | undefined {
  let offset = 0;
  let flow = 0;
  let onLine = 0;
  let isScalar = false;
  for (const token of new (yaml().Lexer)().lex(text)) {
    if (token === documentMark || token === flowErrorMark) continue;
    if (token === scalarMark) {
      isScalar = true;
      continue;
    }
    if (isScalar) isScalar = false;
    else if (token === "[" || token === "{") flow++;
    else if (token === "]" || token === "}") flow = Math.max(0, flow - 1);
    else if (token === "-" || token === "?") onLine++;
    else if (token.endsWith("\n")) onLine = 0;
    else if (token.length > indentMax && onLine === 0 && token.trim() === "") return offset;
    if (flow + onLine > depthMax) return offset;
    offset += token.length;
  }
  return undefined;
}

/** A list written in one line for the environment or `--set`: `[a, "b c"]`. */
export function parseInlineList(text: string): readonly string[] | undefined {
  if (tooDeepAt(text) !== undefined) return undefined;
  const document = yaml().parseDocument(text, { prettyErrors: false });
  if (document.errors.length > 0 || !yaml().isSeq(document.contents)) return undefined;
  const items: string[] = [];
  for (const item of document.contents.items) {
    if (!yaml().isScalar(item) || item.value === null) return undefined;
    items.push(scalarText(item) ?? "");
  }
  return items;
}

class YamlReader {
  readonly #file: string;
  readonly #text: string;
  readonly #lines: readonly string[];
  readonly #counter: LineCounter = new (yaml().LineCounter)();
  readonly #faults: Fault[] = [];
  readonly #document: Document.Parsed;
  #aliasUses = 0;

  constructor(file: string, text: string) {
    this.#file = file;
    this.#text = text;
    this.#lines = text.split(/\r?\n/);
    this.#document = yaml().parseDocument(text, {
      lineCounter: this.#counter,
      prettyErrors: false,
    });
  }

  read(): LoadedFile {
    const told = new Set<number>();
    for (const error of [...this.#document.errors, ...this.#document.warnings]) {
      const at = error.pos[0];
      // What comes behind the first at one place is its echo.
      if (told.has(at)) continue;
      told.add(at);
      this.#faults.push(sourceFault(this.#placeAt(at, 1), explainSyntax(error)));
    }
    return { root: this.#readRoot(), faults: this.#faults };
  }

  #readRoot(): RawMap {
    const contents = this.#document.contents;
    const place = wholeFile(this.#file);
    const empty: RawMap = { kind: "map", place, entries: [] };
    if (contents === null || (yaml().isScalar(contents) && contents.value === null)) return empty;
    if (yaml().isMap(contents)) return this.#readMap(contents, 0);
    if (this.#faults.length === 0) {
      this.#fault(contents, `expected keys such as "data:" at the top, got ${wordFor(contents)}`);
    }
    return empty;
  }

  #readNode(node: unknown, depth: number, fallback: Place): RawNode {
    const empty: RawNode = { kind: "scalar", place: fallback, text: undefined };
    if (yaml().isAlias(node)) {
      const target = node.resolve(this.#document);
      this.#aliasUses++;
      if (target === undefined) {
        this.#fault(node, `the alias *${node.source} names no anchor above it`);
      } else if (this.#aliasUses > aliasUsesMax) {
        this.#fault(node, `more than ${aliasUsesMax} uses of aliases`);
      } else {
        return this.#readNode(target, depth + 1, fallback);
      }
      return empty;
    }
    if (depth > depthMax) return empty;
    if (yaml().isMap(node)) return this.#readMap(node, depth);
    if (yaml().isSeq(node)) {
      const place = this.#placeOf(node);
      const items = node.items.map((item) => this.#readNode(item, depth + 1, place));
      return { kind: "list", place, items };
    }
    if (yaml().isScalar(node)) {
      const place = node.range?.[0] === node.range?.[1] ? fallback : this.#placeOf(node);
      return { kind: "scalar", place, text: scalarText(node) };
    }
    return empty;
  }

  #readMap(map: YAMLMap, depth: number): RawMap {
    const entries: RawEntry[] = [];
    for (const item of map.items) {
      if (!yaml().isPair(item)) continue;
      const key = item.key;
      if (!yaml().isScalar(key)) {
        this.#fault(isNodeLike(key) ? key : map, "a key must be a plain word");
        continue;
      }
      const keyPlace = this.#placeOf(key);
      if (key.source === "<<") {
        this.#faults.push(sourceFault(keyPlace, 'merge keys ("<<") are not supported'));
        continue;
      }
      const value = this.#readNode(item.value, depth + 1, keyPlace);
      entries.push({ key: scalarText(key) ?? "", keyPlace, value });
    }
    return { kind: "map", place: this.#placeOf(map), entries };
  }

  #fault(node: Node, message: string): void {
    this.#faults.push(sourceFault(this.#placeOf(node), message));
  }

  #placeOf(node: Node): FilePlace {
    const [start, end] = node.range ?? [0, 1];
    return this.#placeAt(start, end - start);
  }

  #placeAt(offset: number, length: number): FilePlace {
    const { line, col } = this.#counter.linePos(Math.min(offset, this.#text.length));
    const lineText = this.#lines[line - 1] ?? "";
    const rest = Math.max(1, lineText.length - (col - 1));
    return {
      kind: "file",
      file: this.#file,
      line,
      column: col,
      length: Math.max(1, Math.min(length, rest)),
      lineText,
    };
  }
}

function scalarText(node: Scalar): string | undefined {
  if (node.type === "PLAIN") return node.value === null ? undefined : (node.source ?? "");
  return node.value === null ? undefined : String(node.value);
}

function isNodeLike(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "range" in value;
}

function wordFor(node: Node): string {
  return yaml().isSeq(node) ? "a list" : "a single value";
}

function wholeFile(file: string): Place {
  return { kind: "source", label: file };
}

function sourceFault(place: Place, message: string): Fault {
  return { code: "CONFIG_SOURCE_INVALID", place, path: "", message };
}

function refusedEncoding(bytes: Uint8Array): string | undefined {
  const [first, second, third] = bytes;
  const utf16 =
    (first === 0xff && second === 0xfe) ||
    (first === 0xfe && second === 0xff) ||
    (first === 0 && second !== 0) ||
    (first !== 0 && first !== undefined && second === 0);
  if (utf16 || (first === 0 && second === 0 && third !== undefined)) {
    return "the file is not UTF-8 but looks like UTF-16 or UTF-32; save it as UTF-8";
  }
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return undefined;
  } catch {
    // The decoder says no more than that; the position is of little help in another encoding.
    return "the file is not valid UTF-8; save it as UTF-8";
  }
}

/** The parser's words where they are plain, ours where a reader would be left guessing. */
function explainSyntax(error: YAMLError): string {
  switch (error.code) {
    case "TAB_AS_INDENT":
      return "a tab cannot indent; use spaces";
    case "DUPLICATE_KEY":
      return "this key stands twice in the same place";
    case "MULTIPLE_DOCS":
      return 'a second document ("---") is not read; keep one';
    case "TAG_RESOLVE_FAILED":
      return "custom tags (!name) are not supported";
    case "BAD_SCALAR_START":
      return "this value must stand in quotes";
    case "BLOCK_AS_IMPLICIT_KEY":
      return 'a second "key: value" on one line; put it on its own line, or quote a text with ": "';
    default:
      if (error.message.startsWith("All mapping items")) {
        return "wrong indentation: keys of one level must start at the same column";
      }
      return error.message.charAt(0).toLowerCase() + error.message.slice(1);
  }
}
