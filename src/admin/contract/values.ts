// Pieces that bodies, queries and answers of the HTTP API are made of. Texts from outside are bounded
// here, before anything looks at them.
//
// Queries and path parameters arrive as text: `wholeText` and `flagText` take them from there. In
// answers a value that is not there is left out, never null.

import * as v from "valibot";

/** Longest client id, topic or filter taken, in UTF-16 units. */
export const textLengthMax = 65_535;
export const pageItemsMax = 1000;
const cursorLengthMax = 90_000;

/** Characters that no name, topic or client id may hold. */
const noNul = v.check<string, string>((text) => !text.includes("\u0000"), "holds U+0000");

export const clientId = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(textLengthMax),
  noNul,
  v.description("MQTT client id"),
);
export const topic = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(textLengthMax),
  noNul,
  v.check((text) => !/[+#]/.test(text), "a topic has no wildcards"),
  v.description("topic name, without wildcards"),
);
export const filter = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(textLengthMax),
  noNul,
  v.description("topic filter"),
);
/** Of databases, holds and keys. */
export const name = v.pipe(
  v.string(),
  v.regex(/^[a-z][a-z0-9_-]{0,63}$/, "1 to 64 of a-z, 0-9, _ and -, beginning with a letter"),
);
export const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
export const timeUs = v.pipe(whole, v.description("microseconds since 1970, UTC"));
export const amount = v.pipe(v.number(), v.description("not negative"));
export const qos = v.picklist([0, 1, 2]);

export function wholeText(min: number, max: number, description: string) {
  return v.pipe(
    v.string(),
    v.regex(/^\d{1,16}$/, "a whole number is expected"),
    v.transform(Number),
    v.number(),
    v.integer(),
    v.minValue(min),
    v.maxValue(max),
    v.description(description),
  );
}

export function flagText(description: string) {
  return v.pipe(
    v.picklist(["true", "false"]),
    v.transform((text) => text === "true"),
    v.boolean(),
    v.description(description),
  );
}

const cursor = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(cursorLengthMax),
  noNul,
  v.description("`next` of the page before"),
);

/** Of every list that may be long. */
export const pageQuery = {
  after: v.optional(cursor),
  limit: v.optional(wholeText(1, pageItemsMax, "items of a page; 100 when it is not given")),
};

/** The same in a body. */
export const pageBody = {
  after: v.optional(cursor),
  limit: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(pageItemsMax))),
};

export const limitDefault = 100;

/** A page: `next` is absent at the end, `total` where it cannot be known without reading all. */
export function pageOf<T extends v.GenericSchema>(item: T) {
  return v.object({
    items: v.array(item),
    next: v.optional(v.string()),
    total: v.optional(v.pipe(whole, v.description("items of all pages together"))),
  });
}

export function listOf<T extends v.GenericSchema>(item: T) {
  return v.object({ items: v.array(item), total: whole });
}
