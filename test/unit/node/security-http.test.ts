import { expect, test } from "vitest";
import { reasonOf, request } from "../../../src/node/security/http.ts";

test("why a service could not be asked tells nothing of its URL", async () => {
  const url = "http://flagstone:hunter2@127.0.0.1:1/keys?token=abc";
  const error: unknown = await request({ url, timeoutMs: 1000 }).catch((thrown: unknown) => thrown);
  expect(reasonOf(error)).toContain("credentials");
  expect(reasonOf(error)).not.toMatch(/hunter2|token=/);
});
