// Amounts that rows of the key table are written in: bytes and milliseconds.

export const kib = 2 ** 10;
export const mib = 2 ** 20;
export const gib = 2 ** 30;
export const second = 1000;
export const minute = 60 * second;
export const day = 86_400 * second;
export const uint16Max = 65_535;
