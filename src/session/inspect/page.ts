// Pages of the operator's views.

import type { PageRequest } from "../api.ts";
import { sessionErrors } from "../errors.ts";

export const pageCountMax = 1000;

/** @throws SESSION_PAGE_INVALID. */
export function checkedCount({ countMax }: PageRequest): number {
  if (Number.isInteger(countMax) && countMax >= 1 && countMax <= pageCountMax) return countMax;
  throw sessionErrors.pageInvalid({ what: "countMax", max: pageCountMax });
}
