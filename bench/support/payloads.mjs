// Payloads that never repeat: seeded telemetry as JSON, or bytes that nothing compresses. A pool is
// drawn once, so that drawing is no part of what is measured; each payload made of it has a number of
// its own.

const poolSize = 8_192;
const numberDigits = 10;

/** xorshift32: the same payloads in every run. */
function createDraw(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/** `next(n)` gives the n-th payload, a buffer of its own. */
export function createPayloads(fill, sizeBytes) {
  const draw = createDraw(0x9e3779b9);
  const pool = Array.from({ length: poolSize }, () =>
    fill === "json" ? jsonPayload(draw, sizeBytes) : randomPayload(draw, sizeBytes),
  );
  return (n) => {
    const from = pool[(n * 40_503) % poolSize];
    const bytes = Buffer.allocUnsafe(sizeBytes);
    from.copy(bytes);
    // In both kinds the number stands where the reading says its own.
    let left = n;
    for (let at = 7 + numberDigits - 1; at >= 7; at--) {
      bytes[at] = 48 + (left % 10);
      left = Math.floor(left / 10);
    }
    return bytes;
  };
}

/** Readings of one host, one after the other, cut to the size. */
function jsonPayload(draw, sizeBytes) {
  let text = "";
  while (text.length < sizeBytes) {
    const values = { temp: draw() % 90_000, load: draw() % 1_000, free: draw() };
    const reading = { host: `host${draw() % 1_000}`, ...values, up: draw() % 86_400 };
    text += `{"seq":${"0".repeat(numberDigits)},${JSON.stringify(reading).slice(1)}`;
  }
  return Buffer.from(text.slice(0, sizeBytes));
}

function randomPayload(draw, sizeBytes) {
  const bytes = Buffer.allocUnsafe(sizeBytes);
  for (let at = 0; at < sizeBytes; at++) bytes[at] = draw() >>> 24;
  return bytes;
}
