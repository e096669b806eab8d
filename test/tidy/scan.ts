// A small lexer for TypeScript and JavaScript, good enough to find imports and names without a
// compiler: it tells code from comments, strings, templates and regular expressions.
//
// Invariants: every token knows its line; text inside comments and strings never becomes a token of
// kind `name`; code inside `${}` does. A slash is a regular expression when the token before it
// cannot end an expression. JSX is not understood.

export type Token = {
  readonly kind: "name" | "number" | "string" | "template" | "regex" | "mark";
  /** The text of the token; for strings the characters between the quotes, escapes as written. */
  readonly text: string;
  readonly line: number;
};

export type Comment = { readonly text: string; readonly line: number; readonly endLine: number };

export type Scan = { readonly tokens: readonly Token[]; readonly comments: readonly Comment[] };

export type Import = {
  readonly specifier: string;
  readonly line: number;
  /** `import x from`, `export x from`, `import("x")`, `require("x")`. */
  readonly form: "import" | "export" | "dynamic" | "require";
};

const nameStart = /[\p{L}_$#]/u;
const namePart = /[\p{L}\p{N}_$\u200c\u200d]/u;
// After these words a slash starts a regular expression although they read like names.
const wordsBeforeRegex = new Set(
  "return typeof case in of delete void throw new else do instanceof await yield".split(" "),
);

class Lexer {
  readonly tokens: Token[] = [];
  readonly comments: Comment[] = [];
  readonly #text: string;
  #at = 0;
  #line = 1;

  constructor(text: string) {
    this.#text = text;
    if (text.startsWith("#!")) this.#skipTo(this.#lineEnd());
  }

  /** Reads code up to the end, or up to the brace that closes a template's `${`. */
  run(untilBrace: boolean): void {
    let depth = 0;
    while (this.#at < this.#text.length) {
      const char = this.#text[this.#at] as string;
      if (untilBrace && char === "}" && depth === 0) return;
      if (char === "{") depth++;
      if (char === "}") depth--;
      this.#one(char);
    }
  }

  #one(char: string): void {
    const next = this.#text[this.#at + 1] ?? "";
    if (/\s/.test(char)) this.#skipTo(this.#at + 1);
    else if (char === "/" && next === "/") this.#comment(this.#lineEnd());
    else if (char === "/" && next === "*") this.#comment(this.#find("*/", this.#at + 2) + 2);
    else if (char === '"' || char === "'") this.#string(char);
    else if (char === "`") this.#template();
    else if (char === "/" && this.#regexMayStart()) this.#regex();
    else if (nameStart.test(char)) this.#word("name");
    else if (/[0-9]/.test(char)) this.#word("number");
    else this.#push("mark", this.#at + 1);
  }

  #lineEnd(): number {
    return this.#find("\n", this.#at);
  }

  #find(needle: string, from: number): number {
    const at = this.#text.indexOf(needle, from);
    return at < 0 ? this.#text.length : at;
  }

  #skipTo(end: number): void {
    const stop = Math.min(end, this.#text.length);
    for (; this.#at < stop; this.#at++) if (this.#text[this.#at] === "\n") this.#line++;
  }

  #push(kind: Token["kind"], end: number): void {
    const line = this.#line;
    this.tokens.push({ kind, text: this.#text.slice(this.#at, end), line });
    this.#skipTo(end);
  }

  #comment(end: number): void {
    const line = this.#line;
    const text = this.#text.slice(this.#at, end);
    this.#skipTo(end);
    this.comments.push({ text, line, endLine: this.#line });
  }

  #word(kind: "name" | "number"): void {
    let end = this.#at + 1;
    while (end < this.#text.length) {
      const char = this.#text[end] as string;
      const point = kind === "number" && char === "." && /[0-9]/.test(this.#text[end + 1] ?? "");
      if (!namePart.test(char) && !point) break;
      end++;
    }
    this.#push(kind, end);
  }

  #string(quote: string): void {
    let end = this.#at + 1;
    while (end < this.#text.length && this.#text[end] !== quote && this.#text[end] !== "\n") {
      end += this.#text[end] === "\\" ? 2 : 1;
    }
    const line = this.#line;
    this.tokens.push({ kind: "string", text: this.#text.slice(this.#at + 1, end), line });
    this.#skipTo(end + 1);
  }

  #template(): void {
    const line = this.#line;
    this.tokens.push({ kind: "template", text: "`", line });
    this.#skipTo(this.#at + 1);
    while (this.#at < this.#text.length && this.#text[this.#at] !== "`") {
      if (this.#text.startsWith("${", this.#at)) {
        this.#push("mark", this.#at + 2);
        this.run(true);
        this.#push("mark", this.#at + 1);
      } else {
        this.#skipTo(this.#at + (this.#text[this.#at] === "\\" ? 2 : 1));
      }
    }
    this.#skipTo(this.#at + 1);
    // Closes the template for the question "may a slash start a regular expression here?".
    this.tokens.push({ kind: "template", text: "`", line: this.#line });
  }

  #regex(): void {
    let end = this.#at + 1;
    let inClass = false;
    while (end < this.#text.length && this.#text[end] !== "\n") {
      const char = this.#text[end];
      if (char === "\\") end++;
      else if (char === "[") inClass = true;
      else if (char === "]") inClass = false;
      else if (char === "/" && !inClass) break;
      end++;
    }
    end++;
    while (/[a-z]/.test(this.#text[end] ?? "")) end++;
    this.#push("regex", end);
  }

  #regexMayStart(): boolean {
    const before = this.tokens.at(-1);
    if (before === undefined) return true;
    if (before.kind === "name") return wordsBeforeRegex.has(before.text);
    if (before.kind !== "mark") return false;
    return before.text !== ")" && before.text !== "]" && before.text !== "}";
  }
}

export function scan(text: string): Scan {
  const lexer = new Lexer(text);
  lexer.run(false);
  return { tokens: lexer.tokens, comments: lexer.comments };
}

/** Everything a file takes from other modules, type-only imports included. */
export function listImports(tokens: readonly Token[]): Import[] {
  const found: Import[] = [];
  for (let index = 0; index < tokens.length; index++) {
    const taken = importAt(tokens, index);
    if (taken !== undefined) found.push(taken);
  }
  return found;
}

function importAt(tokens: readonly Token[], index: number): Import | undefined {
  const token = tokens[index];
  if (token?.kind !== "name" || isMark(tokens[index - 1], ".")) return undefined;
  const next = tokens[index + 1];
  if (token.text === "import" || token.text === "require") {
    const argument = tokens[index + 2];
    if (isMark(next, "(") && argument?.kind === "string") {
      const form = token.text === "import" ? "dynamic" : "require";
      return { specifier: argument.text, line: token.line, form };
    }
  }
  if (token.text === "import" && next?.kind === "string") {
    return { specifier: next.text, line: token.line, form: "import" };
  }
  if (token.text !== "import" && token.text !== "export") return undefined;
  const from = fromClause(tokens, index + 1);
  return from === undefined ? undefined : { specifier: from, line: token.line, form: token.text };
}

// `import a, { b } from "x"`, `export * as c from "x"`: names, braces, commas and stars, then
// `from "x"`. Anything else (a declaration, `import.meta`) has no clause.
function fromClause(tokens: readonly Token[], start: number): string | undefined {
  for (let index = start; index < tokens.length; index++) {
    const token = tokens[index] as Token;
    const next = tokens[index + 1];
    if (token.kind === "name" && token.text === "from" && next?.kind === "string") return next.text;
    const named = token.kind === "name" || token.kind === "string";
    if (!named && !(token.kind === "mark" && "{},*".includes(token.text))) return undefined;
    if (token.kind === "name" && declares.has(token.text)) return undefined;
  }
  return undefined;
}

const declares = new Set(["const", "let", "var", "function", "class", "interface", "export"]);

export function isMark(token: Token | undefined, text: string): boolean {
  return token?.kind === "mark" && token.text === text;
}
