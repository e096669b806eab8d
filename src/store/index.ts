// The face of the store room, published as `flagstone/store`.
export type * from "./api.ts";
