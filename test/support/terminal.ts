// Text as a terminal would take it: its colour codes, and what else could steer it.

const escapeCode = String.fromCharCode(27);

/** Without colour codes. */
export function withoutColours(text: string): string {
  return text.replaceAll(new RegExp(`${escapeCode}\\[\\d+m`, "g"), "");
}

/** Control characters other than line ends. */
export function controlCharacters(text: string): string[] {
  return [...text].filter((character) => {
    const code = character.charCodeAt(0);
    return (code < 32 && code !== 10) || (code >= 127 && code < 160);
  });
}
