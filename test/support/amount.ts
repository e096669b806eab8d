// How much of a search a test does. Everybody waits for `npm test`; CI searches further, and
// FLAGSTONE_LONG=1 as far as anybody has patience.

export const isLong = process.env.FLAGSTONE_LONG === "1";

export function amount(quick: number, ci: number, long: number = ci): number {
  if (isLong) return long;
  return process.env.CI === undefined ? quick : ci;
}
