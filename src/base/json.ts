// JSON from outside. What is nested very deep is refused before it is parsed: a few megabytes of
// brackets would hold up the event loop for seconds, and nothing that we read is deep.

const quote = 0x22;
const backslash = 0x5c;

/** @throws SyntaxError for what is no JSON, or is nested deeper than `depthMax`. */
export function parseJson(text: string, depthMax = 32): unknown {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) at = endOfString(text, at);
    else if (code === 0x5b || code === 0x7b) {
      depth++;
      if (depth > depthMax) throw new SyntaxError(`nested deeper than ${depthMax} levels`);
    } else if (code === 0x5d || code === 0x7d) depth--;
  }
  return JSON.parse(text);
}

/** Of the closing quote; the end of the text where there is none, which parsing tells. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === quote) return at;
    at += code === backslash ? 2 : 1;
  }
  return at;
}
