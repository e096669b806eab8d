// Lines of a byte stream, as bytes: what a line holds is not text to anybody here. A line ends with
// LF or CRLF, and the last one may have no end; a CR elsewhere, and what Unicode counts as a line
// end, belongs to the line.

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/** @throws what `tooLong` makes, as soon as a line is known to be longer than `sizeBytesMax`. */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array | string>,
  sizeBytesMax: number,
  tooLong: () => Error,
): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of chunks) {
    const bytes = Buffer.from(chunk as Uint8Array);
    let start = 0;
    for (let end = bytes.indexOf(lineFeed); end >= 0; end = bytes.indexOf(lineFeed, start)) {
      parts.push(bytes.subarray(start, end));
      yield withoutReturn(Buffer.concat(parts));
      parts = [];
      sizeBytes = 0;
      start = end + 1;
    }
    if (start === bytes.length) continue;
    parts.push(bytes.subarray(start));
    sizeBytes += bytes.length - start;
    if (sizeBytes > sizeBytesMax) throw tooLong();
  }
  if (parts.length > 0) yield Buffer.concat(parts);
}

function withoutReturn(line: Buffer): Buffer {
  return line.at(-1) === carriageReturn ? line.subarray(0, -1) : line;
}
